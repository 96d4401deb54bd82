//go:build !linux

package faultfs

import (
	"fmt"
	"os/exec"
)

type mounted struct{}

// Mount is [ErrMissing]: it needs Linux.
func Mount(string) (*FS, error) { return nil, fmt.Errorf("%w: Linux", ErrMissing) }

// Start is [ErrMissing] as well.
func (*FS) Start(*exec.Cmd) error { return fmt.Errorf("%w: Linux", ErrMissing) }

// Close does nothing.
func (*FS) Close() {}
