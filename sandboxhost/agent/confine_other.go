//go:build !linux

package agent

import "errors"

// Confine is for Linux only.
func Confine(_, _ []string) error { return errors.New("--confine needs Linux") }
