package server

import (
	"context"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// Sandboxes is a [Host] that tells of sandboxes and ends them: with one the
// capability sandboxes is offered. Each method is asked for a session, whose
// tenant and token say which sandboxes there are for it; any other is
// sandbox.KindNotFound like one that never was.
type Sandboxes interface {
	// ListSandboxes returns them by name, those that do not run but have
	// files too.
	ListSandboxes(ctx context.Context, s *Session) ([]sandbox.Status, error)
	SandboxStatus(ctx context.Context, s *Session, name string) (sandbox.Status, error)
	// CreateSandbox starts one where it does not run, and waits. ctx ends the
	// waiting alone.
	CreateSandbox(ctx context.Context, s *Session, name string) (sandbox.Status, error)
	// RemoveSandbox ends one, with files removes its directory, and waits for
	// all of it. It is not cancelled once it has begun.
	RemoveSandbox(ctx context.Context, s *Session, name string, files bool) error
	// ExtendSandbox lets one that runs live at least so long from now on, as
	// far as the host's bound goes.
	ExtendSandbox(ctx context.Context, s *Session, name string, least time.Duration) (sandbox.Status, error)
	// PauseSandbox stops all processes of one that runs, ResumeSandbox has
	// them go on; sandbox.KindUnsupported where that cannot be.
	PauseSandbox(ctx context.Context, s *Session, name string) (sandbox.Status, error)
	ResumeSandbox(ctx context.Context, s *Session, name string) (sandbox.Status, error)
}

// sandboxCall tells whether params are those of the capability sandboxes.
func sandboxCall(method string) bool {
	switch method {
	case rpc.MethodSandboxList, rpc.MethodSandboxInfo, rpc.MethodSandboxCreate, rpc.MethodSandboxRemove, rpc.MethodSandboxExtend,
		rpc.MethodSandboxPause, rpc.MethodSandboxResume:
		return true
	}
	return false
}

// sandboxes does a call of that capability.
func (cl *call) sandboxes() (rpc.Result, error) {
	host, session := cl.c.s.sandboxes, cl.c.peer.session
	name := cl.sandboxNamed()
	var status sandbox.Status
	var err error
	switch p := cl.r.Params.(type) {
	case *rpc.SandboxRemoveParams:
		// What ends the session does not end this.
		err = host.RemoveSandbox(context.WithoutCancel(cl.ctx), session, name, p.Files)
		return &rpc.Empty{}, err
	case *rpc.SandboxExtendParams:
		status, err = host.ExtendSandbox(cl.ctx, session, name, p.For)
	case *rpc.SandboxParams:
		status, err = cl.aboutOne(host, session, name)
	default:
		list, err := host.ListSandboxes(cl.ctx, session)
		return &rpc.SandboxListResult{Sandboxes: list}, err
	}
	return &rpc.SandboxResult{Status: status}, err
}

// aboutOne does a call that names a sandbox and nothing else.
func (cl *call) aboutOne(host Sandboxes, s *Session, name string) (sandbox.Status, error) {
	switch cl.r.Method {
	case rpc.MethodSandboxCreate:
		return host.CreateSandbox(cl.ctx, s, name)
	case rpc.MethodSandboxPause:
		return host.PauseSandbox(cl.ctx, s, name)
	case rpc.MethodSandboxResume:
		return host.ResumeSandbox(cl.ctx, s, name)
	}
	return host.SandboxStatus(cl.ctx, s, name)
}

// sandboxNamed is the sandbox that a call is about: the session's own, unless
// it names one.
func (cl *call) sandboxNamed() string {
	name := ""
	switch p := cl.r.Params.(type) {
	case *rpc.SandboxParams:
		name = p.Sandbox
	case *rpc.SandboxRemoveParams:
		name = p.Sandbox
	case *rpc.SandboxExtendParams:
		name = p.Sandbox
	}
	if name == "" {
		return cl.c.peer.session.Sandbox
	}
	return name
}

// outlives tells whether a call gets the answer of its own work although its
// connection ends for why: the end of the session's sandbox is what it may have
// asked for.
func (cl *call) outlives(why *sandbox.Error) bool {
	return cl.r.Method == rpc.MethodSandboxRemove && why.Reason != sandbox.ReasonDraining
}

// waitLast waits for the calls that outlive the sandbox's life.
func (c *conn) waitLast(ctx context.Context) {
	if c.peer != nil {
		c.peer.last.wait(ctx)
	}
}
