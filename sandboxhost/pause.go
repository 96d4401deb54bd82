package sandboxhost

import (
	"context"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
)

// PauseSandbox implements [server.Sandboxes].
func (h *Host) PauseSandbox(ctx context.Context, s *server.Session, name string) (sandbox.Status, error) {
	return h.changePause(ctx, s, rpc.MethodSandboxPause, name, true)
}

// ResumeSandbox implements [server.Sandboxes].
func (h *Host) ResumeSandbox(ctx context.Context, s *server.Session, name string) (sandbox.Status, error) {
	return h.changePause(ctx, s, rpc.MethodSandboxResume, name, false)
}

// changePause has a sandbox be paused, or not. One that is so already stays so.
func (h *Host) changePause(ctx context.Context, s *server.Session, op, name string, paused bool) (sandbox.Status, error) {
	t, done, err := h.call(s, op, name)
	if err != nil {
		return sandbox.Status{}, err
	}
	defer done()
	l, err := h.begun(ctx, t, op, name)
	if err != nil {
		return sandbox.Status{}, err
	}
	l.pausing.Lock()
	defer l.pausing.Unlock()
	// Half a pause is none: nobody's giving up breaks it off.
	whole := context.WithoutCancel(ctx)
	switch {
	case paused == l.paused.Load():
	case paused:
		err = l.pause(whole)
	default:
		err = l.resume(whole)
	}
	if l.isEnding() || l.over() || h.starts.Err() != nil {
		// What ends does not end while it is frozen.
		l.instance.Resume(whole)
		return sandbox.Status{}, notThere(op)
	}
	if err != nil {
		return sandbox.Status{}, sandbox.AsError(op, "", err)
	}
	return h.status(ctx, s.Tenant, name, l), nil
}

// begun returns the life of a sandbox that runs, and waits where it starts.
func (h *Host) begun(ctx context.Context, t *tenant, op, name string) (*life, error) {
	l := h.alive(t, name)
	if l == nil {
		return nil, notThere(op)
	}
	select {
	case <-l.begun:
	case <-ctx.Done():
		return nil, sandbox.Cancelled(ctx, op, "")
	}
	if l.over() {
		return nil, notThere(op)
	}
	return l, nil
}

// pause stops all processes of a life. Another life of the host that finds it so
// has it go on: that is written down before.
func (l *life) pause(ctx context.Context) error {
	if err := l.recordPaused(true); err != nil {
		return err
	}
	l.paused.Store(true) // before, or a call would get through to where nobody answers
	if err := l.instance.Pause(ctx); err != nil {
		l.paused.Store(false)
		l.recordPaused(false)
		return err
	}
	return nil
}

func (l *life) resume(ctx context.Context) error {
	if err := l.instance.Resume(ctx); err != nil {
		return err
	}
	l.paused.Store(false)
	return l.recordPaused(false)
}

func (l *life) recordPaused(paused bool) error {
	return l.within(func() error { return l.record(l.ends, paused) })
}

// record writes down what can change in a life. The lock of its tenure is held.
func (l *life) record(ends time.Time, paused bool) error {
	spec := l.spec
	spec.Ends, spec.Paused = ends, paused
	return writeSpec(spec)
}

// pausedError is what calls to a sandbox are told that is paused.
func pausedError(op string) error {
	return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: op, Reason: sandbox.ReasonSandboxPaused, Outcome: sandbox.OutcomeNone,
		Message: "the sandbox is paused"}
}
