package adapter

import (
	"context"
	"slices"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// ListSandboxes lists the sandboxes that the token covers, by name: those that
// run and those that have files. This call and the ones below are of the
// sandboxes of a daemon, not of this one: they want the capability
// [sandbox.CapSandboxes], without which they are sandbox.KindUnsupported, and an
// empty name is this one's.
func (s *Sandbox) ListSandboxes(ctx context.Context) ([]sandbox.Status, error) {
	return managed(ctx, s, rpc.MethodSandboxList, func(c *rpc.Conn) ([]sandbox.Status, error) { return c.SandboxList(ctx) })
}

// SandboxStatus tells of a sandbox. One that is not there, and one that the token
// does not cover, is sandbox.KindNotFound here and below.
func (s *Sandbox) SandboxStatus(ctx context.Context, name string) (sandbox.Status, error) {
	return managed(ctx, s, rpc.MethodSandboxInfo, func(c *rpc.Conn) (sandbox.Status, error) { return c.SandboxInfo(ctx, name) })
}

// CreateSandbox starts a sandbox where it does not run, and waits for it.
func (s *Sandbox) CreateSandbox(ctx context.Context, name string) (sandbox.Status, error) {
	return managed(ctx, s, rpc.MethodSandboxCreate, func(c *rpc.Conn) (sandbox.Status, error) { return c.SandboxCreate(ctx, name) })
}

// RemoveSandbox ends a sandbox, with files removes its directory, and waits for
// that. Where it is this one, the connection ends behind the answer, and the
// next call starts another life.
func (s *Sandbox) RemoveSandbox(ctx context.Context, name string, files bool) error {
	_, err := managed(ctx, s, rpc.MethodSandboxRemove, func(c *rpc.Conn) (struct{}, error) {
		return struct{}{}, c.SandboxRemove(ctx, name, files)
	})
	return err
}

// ExtendSandbox lets a sandbox that runs live for at least so long from now on,
// as far as its daemon allows; the result says until when that is.
func (s *Sandbox) ExtendSandbox(ctx context.Context, name string, least time.Duration) (sandbox.Status, error) {
	return managed(ctx, s, rpc.MethodSandboxExtend, func(c *rpc.Conn) (sandbox.Status, error) { return c.SandboxExtend(ctx, name, least) })
}

// PauseSandbox stops all processes of a sandbox until ResumeSandbox; calls to it
// are sandbox.KindUnavailable until then. Not every driver can:
// sandbox.KindUnsupported.
func (s *Sandbox) PauseSandbox(ctx context.Context, name string) (sandbox.Status, error) {
	return managed(ctx, s, rpc.MethodSandboxPause, func(c *rpc.Conn) (sandbox.Status, error) { return c.SandboxPause(ctx, name) })
}

// ResumeSandbox has a sandbox that is paused go on.
func (s *Sandbox) ResumeSandbox(ctx context.Context, name string) (sandbox.Status, error) {
	return managed(ctx, s, rpc.MethodSandboxResume, func(c *rpc.Conn) (sandbox.Status, error) { return c.SandboxResume(ctx, name) })
}

// managed sends a call about sandboxes, once.
func managed[T any](ctx context.Context, s *Sandbox, op string, send func(*rpc.Conn) (T, error)) (T, error) {
	var none T
	l, err := s.link(ctx)
	if err != nil {
		return none, at(err, op, "")
	}
	if !slices.Contains(l.hello.Info.Capabilities, sandbox.CapSandboxes) {
		return none, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Message: "the server does not tell of sandboxes"}
	}
	return send(l.rpc)
}
