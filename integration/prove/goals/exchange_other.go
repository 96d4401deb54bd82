//go:build !linux

package goals

import "errors"

// exchange needs renameat2.
func exchange(string, string) error { return errors.ErrUnsupported }
