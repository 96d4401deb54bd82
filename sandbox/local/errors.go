//go:build linux

package local

import (
	"errors"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/root"
)

// fail returns err as what a caller of op on path is told. No other path than
// the caller's own is ever in it.
func fail(op, path string, err error) error {
	kind := sandbox.Kind("")
	switch {
	case errors.Is(err, root.ErrInvalid):
		kind = sandbox.KindInvalidParams
	case errors.Is(err, root.ErrOutside), errors.Is(err, root.ErrMagicLink):
		kind = sandbox.KindPermission
	case errors.Is(err, root.ErrNoName):
		kind = sandbox.KindInvalidParams
	default:
		e := *sandbox.AsError(op, path, err)
		e.Op, e.Path = op, path
		return &e
	}
	return &sandbox.Error{Kind: kind, Op: op, Path: path, Message: err.Error(), Err: err}
}

func invalid(op, path, message string) error {
	return &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: op, Path: path, Message: message}
}

func failKind(kind sandbox.Kind, op, path, message string) error {
	return &sandbox.Error{Kind: kind, Op: op, Path: path, Message: message}
}

func tooLarge(op, path string, limit int64) error {
	return &sandbox.Error{Kind: sandbox.KindTooLarge, Op: op, Path: path, Limit: sandbox.Some(limit)}
}

// keyless refuses request keys: they are for calls whose way can break.
func keyless(op, path, key string) error {
	if key == "" {
		return nil
	}
	return failKind(sandbox.KindUnsupported, op, path, "there are no request keys here")
}
