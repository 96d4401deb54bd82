package rpc

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/controld/controld/sandbox"
)

// abandon takes a call back after its context ended, or waits for the
// server's word. It returns nil when there is an answer.
func (c *Conn) abandon(ctx context.Context, id uint64, cl *call, method, path string) error {
	if c.w.remove(cl.msg) && c.forget(id) {
		return withOutcome(sandbox.Cancelled(ctx, method, path), sandbox.OutcomeNone)
	}
	c.w.Send(newCall(nil, MethodCancel, &CancelParams{ID: strconv.AppendUint(nil, id, 10)}))
	timer := time.NewTimer(c.opts.CancelTimeout)
	defer timer.Stop()
	select {
	case <-cl.done:
		return nil
	case <-timer.C:
	}
	if !c.forget(id) {
		<-cl.done // its answer is being decoded
		return nil
	}
	c.w.detach(cl.msg)
	return &sandbox.Error{
		Kind: sandbox.KindOutcomeUnknown, Op: method, Path: path, Outcome: sandbox.OutcomeUnknown,
		Message: "cancelled, and no word from the server", Err: context.Cause(ctx),
	}
}

// forget takes a call off the pending ones; false when its answer came first.
func (c *Conn) forget(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pending[id]
	delete(c.pending, id)
	return ok
}

// verdict returns the error of a call that was answered.
func (c *Conn) verdict(ctx context.Context, cl *call, method, path string) error {
	if cl.err == nil {
		return nil
	}
	var e *sandbox.Error
	if !errors.As(cl.err, &e) {
		return c.lost(method, path, errors.Is(cl.err, errUnsent))
	}
	if e.Kind == sandbox.KindCancelled && ctx.Err() != nil {
		e.Err = context.Cause(ctx)
	}
	if e.Op == "" {
		e.Op = method
	}
	return e
}

func withOutcome(e *sandbox.Error, o sandbox.Outcome) *sandbox.Error {
	e.Outcome = o
	return e
}

// What a call in flight is told when the connection ends.
var (
	errUnsent = errors.New("rpc: not sent")
	errLost   = errors.New("rpc: sent, not answered")
)

// lost returns the error of a call whose connection ended.
func (c *Conn) lost(method, path string, unsent bool) error {
	e := &sandbox.Error{Kind: sandbox.KindConnectionLost, Op: method, Path: path, Outcome: sandbox.OutcomeUnknown}
	if unsent {
		e.Outcome = sandbox.OutcomeNone
	}
	if e.Err = c.Err(); e.Err != nil {
		e.Message = "connection lost: " + e.Err.Error()
	}
	return e
}
