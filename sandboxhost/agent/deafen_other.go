//go:build !linux

package agent

// deafen is for namespaces, which only Linux has.
func deafen() error { return nil }
