//go:build !linux

package agent

// deafen is for namespaces, which only Linux has.
func deafen(bool) error { return nil }
