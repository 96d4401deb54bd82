//go:build !linux

package local

import "github.com/controld/controld/sandbox"

// Sandbox is a sandbox.Backend on the machine itself.
type Sandbox struct{ sandbox.Backend }

// New returns an error: only Linux is supported.
func New(Options) (*Sandbox, error) { return nil, unsupported("new") }

// Close implements io.Closer.
func (s *Sandbox) Close() error { return nil }

// Sweep returns an error: only Linux is supported.
func Sweep(string) error { return unsupported("sweep") }

func unsupported(op string) error {
	return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Message: "the local sandbox needs Linux"}
}
