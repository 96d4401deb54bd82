//go:build !linux

package local

import (
	"context"

	"github.com/controld/controld/sandbox"
)

// Sandbox is a sandbox.Backend on the machine itself.
type Sandbox struct{ sandbox.Backend }

// New returns an error: only Linux is supported.
func New(Options) (*Sandbox, error) { return nil, unsupported("new") }

// Close implements io.Closer.
func (s *Sandbox) Close() error { return nil }

// Sweep returns an error: only Linux is supported.
func Sweep(string) error { return unsupported("sweep") }

// SweepOf returns an error: only Linux is supported.
func SweepOf(string, *User) error { return unsupported("sweep") }

// RemoveTree returns an error: only Linux is supported.
func RemoveTree(context.Context, string) error { return unsupported("remove") }

// Keeper is for Linux only.
type Keeper struct{}

// NewKeeper returns a keeper that does nothing.
func NewKeeper(string, ...string) *Keeper { return &Keeper{} }

// Close does nothing.
func (*Keeper) Close() {}

// Keep returns an exit code: only Linux is supported.
func Keep() int { return 1 }

func unsupported(op string) error {
	return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Message: "the local sandbox needs Linux"}
}

// Hide does nothing: commands of the same user can read this process.
func Hide() error { return nil }
