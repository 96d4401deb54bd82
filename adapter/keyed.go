package adapter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/sandbox"
)

// keyed sends a call that changes something. Where the server knows calls by
// their keys it has one, key or a new one, and is sent again with it when the
// connection is lost: the server does it once, however often it comes.
func keyed[T any](ctx context.Context, s *Sandbox, op, path, key string, send func(*link, string) (T, error)) (T, error) {
	var none T
	l, err := s.link(ctx)
	if err != nil {
		return none, at(err, op, path)
	}
	own := key == ""
	switch {
	case !own && !l.hasKeys():
		return none, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Path: path, Message: "the server has no request keys"}
	case own && (s.opts.NoKeys || !l.hasKeys()):
		return send(l, "")
	case own:
		key = uuid.NewString()
	}
	r, err := send(l, key)
	switch e := sandbox.AsError(op, path, err); {
	case e == nil:
		return r, nil
	case e.Kind == sandbox.KindConnectionLost:
		return resend(ctx, s, l, e, func(l *link) (T, error) { return send(l, key) })
	case e.Kind == sandbox.KindResourceExhausted && e.Reason == sandbox.ReasonRequestKey && own:
		return send(l, "") // nothing was done, and it was for a loss that need not come
	}
	return r, err
}

// plain sends a call that needs no key, once.
func plain[T any](ctx context.Context, s *Sandbox, op, path, _ string, send func(*link, string) (T, error)) (T, error) {
	l, err := s.link(ctx)
	if err != nil {
		var none T
		return none, at(err, op, path)
	}
	return send(l, "")
}

func (l *link) hasKeys() bool {
	return slices.Contains(l.hello.Info.Capabilities, sandbox.CapKeys)
}

// resend sends a keyed call again whose connection was lost, until the server
// has answered it or cannot be reached for Options.RetryFor.
func resend[T any](ctx context.Context, s *Sandbox, first *link, lost *sandbox.Error, send func(*link) (T, error)) (T, error) {
	var none T
	until := time.Now().Add(s.opts.RetryFor)
	for again := 0; ; again++ {
		l, err := s.relink(ctx, until, backoff(again))
		if err != nil || lost.Outcome != sandbox.OutcomeNone && !l.remembers(first) {
			return none, gaveUp(ctx, lost)
		}
		sent := time.Now()
		r, err := send(l)
		e := sandbox.AsError(lost.Op, lost.Path, err)
		if e == nil {
			return r, nil
		}
		if e.Kind != sandbox.KindConnectionLost {
			if lost.Outcome != sandbox.OutcomeNone && undone(e) {
				return none, gaveUp(ctx, lost)
			}
			return r, err
		}
		if e.Outcome != sandbox.OutcomeNone {
			lost = e
		}
		if now := time.Now(); now.Sub(sent) > s.opts.RetryFor {
			until, again = now.Add(s.opts.RetryFor), -1 // it had been well meanwhile
		}
	}
}

// relink returns a living link behind a pause, dialling until then.
func (s *Sandbox) relink(ctx context.Context, until time.Time, pause time.Duration) (*link, error) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	case <-ctx.Done():
		return nil, cancelled(ctx)
	}
	for {
		l, err := s.link(ctx)
		if err == nil || ctx.Err() != nil || s.ctx.Err() != nil || sandbox.KindOf(err) == sandbox.KindUnauthenticated {
			return l, err
		}
	}
}

// remembers tells whether the server behind the link knows the keys that came
// by an earlier one: after a restart only one that has written them down does.
func (l *link) remembers(earlier *link) bool {
	restarted := l.hello.Info.Epoch != earlier.hello.Info.Epoch
	return l.hasKeys() && (!restarted || l.hello.Info.Limits.KeptKeys > 0)
}

// undone tells whether an error speaks of this sending alone: that nothing
// came of it says nothing of an earlier one.
func undone(e *sandbox.Error) bool {
	switch e.Kind {
	case sandbox.KindUnavailable, sandbox.KindCancelled:
		return e.Outcome == sandbox.OutcomeNone
	case sandbox.KindResourceExhausted:
		return true
	}
	return false
}

// gaveUp is the error of a call whose answer will not come any more.
func gaveUp(ctx context.Context, lost *sandbox.Error) error {
	if ctx.Err() == nil {
		return lost
	}
	e := *lost
	e.Kind, e.Err = sandbox.KindOutcomeUnknown, errors.Join(context.Cause(ctx), lost.Err)
	if lost.Outcome == sandbox.OutcomeNone {
		e.Kind = sandbox.KindCancelled
	}
	return &e
}
