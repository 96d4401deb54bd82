package server

import (
	"context"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// line acts on one line.
func (c *conn) line(line []byte) step {
	requests, isBatch, fault := rpc.ParseLine(line, c.s.cfg.Limits.MaxBatch, c.s.cfg.Keys != nil)
	if fault != nil {
		c.refuse(fault)
		return goOn
	}
	var b *batch
	if isBatch {
		b = newBatch(c, requests)
	}
	for i, r := range requests {
		if r.Notify {
			c.notified(r)
			continue
		}
		if next := c.request(r, b, i); next != goOn {
			return next
		}
	}
	return goOn
}

// notified acts on a notification. Only a cancel does anything.
func (c *conn) notified(r *rpc.Request) {
	switch {
	case r.Method == rpc.MethodHello:
		c.refuse(&sandbox.Error{Kind: sandbox.KindInvalidRequest, Op: rpc.MethodHello, Message: "hello is no notification"})
	case r.Method == rpc.MethodCancel && r.Err == nil:
		c.cancelCall(r.Params.(*rpc.CancelParams).ID)
	}
}

// request answers a request or sees to it that it will be answered.
func (c *conn) request(r *rpc.Request, b *batch, slot int) step {
	if c.peer == nil {
		if r.Method == rpc.MethodHello && b != nil {
			r.Err = &sandbox.Error{Kind: sandbox.KindInvalidRequest, Op: rpc.MethodHello, Message: "hello in a batch"}
		}
		m, next := c.greet(r)
		c.put(m, b, slot)
		return next
	}
	if r.Method == rpc.MethodHello {
		r.Err = &sandbox.Error{Kind: sandbox.KindInvalidRequest, Op: rpc.MethodHello, Message: "hello comes once"}
	}
	if sandboxCall(r.Method) && c.s.sandboxes == nil {
		r.Err = &sandbox.Error{Kind: sandbox.KindUnknownMethod, Op: r.Method}
	}
	cl, ok := c.register(r, b, slot)
	switch {
	case !ok:
		m := rpc.NewError(nil, "", "", &sandbox.Error{Kind: sandbox.KindInvalidRequest, Message: "the id is in flight"})
		c.put(m, b, slot)
	case r.Err != nil:
		cl.fail(r.Err)
	case r.Method == rpc.MethodPing:
		cl.answer(rpc.NewResult(r.ID, &rpc.Empty{}))
	case r.Method == rpc.MethodCancel:
		c.cancelCall(r.Params.(*rpc.CancelParams).ID)
		cl.answer(rpc.NewResult(r.ID, &rpc.Empty{}))
	default:
		c.admit(cl)
	}
	return goOn
}

// put sends an answer, alone or in its batch.
func (c *conn) put(m *rpc.Message, b *batch, slot int) {
	if b != nil {
		b.put(slot, m)
		return
	}
	c.w.Send(m)
}

// register enters a call among those in flight; false when its id is there.
func (c *conn) register(r *rpc.Request, b *batch, slot int) (*call, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := idKey(r.ID)
	if _, twice := c.calls[key]; twice {
		return nil, false
	}
	cl := &call{c: c, r: r, key: key, batch: b, slot: slot, alone: len(c.calls) == 0}
	if c.calls == nil {
		c.calls = make(map[string]*call)
	}
	c.calls[key] = cl
	if c.ending != nil {
		r.Err = c.ending
	}
	return cl, true
}

// admit starts a call, queues it or refuses it.
func (c *conn) admit(cl *call) {
	if c.s.isDraining() && !isTransferCall(cl.r.Method) && !cl.comesAgain() {
		cl.fail(unavailable(sandbox.ReasonDraining, sandbox.OutcomeNone))
		return
	}
	cl.ctx, cl.cancel = context.WithCancelCause(c.ctx)
	if p, ok := cl.r.Params.(*rpc.CommitParams); ok {
		// In the order of arrival; the call itself says what is wrong.
		if t, err := cl.find(p.ID); err == nil {
			t.Ask(p.Commit)
		}
	}
	cl.charge()
	c.all.Add(1)
	if cl.r.Method == rpc.MethodSandboxRemove {
		c.peer.last.add(1)
	}
	c.s.work.add(1)
	start, err := c.peer.lane.enter(cl)
	switch {
	case err != nil:
		cl.fail(err)
		cl.done()
	case !start:
	case cl.r.Method == rpc.MethodTransferResult:
		cl.awaitEnd()
	case cl.isPrompt():
		c.next = cl
	default:
		go cl.runAll()
	}
}

// isPrompt tells whether the reader shall do a call by itself: one that nothing
// waits beside or behind, and that looks at a file and no more.
func (cl *call) isPrompt() bool {
	if !cl.alone || cl.batch != nil || cl.c.lines.Waiting() || rpc.RequestKey(cl.r.Params) != "" {
		return false
	}
	switch cl.r.Method {
	case rpc.MethodReadFileStream, rpc.MethodStat, rpc.MethodExists:
		cl.c.prompt++
		return cl.c.prompt > fewCalls
	}
	return false
}

// fewCalls are the first that a reader leaves to others: it would keep the stack
// that they need, and most connections are idle behind a few.
const fewCalls = 8

// comesAgain tells whether the call is no new work, but one that runs or has
// been answered, sent again.
func (cl *call) comesAgain() bool {
	p := cl.c.peer
	key := rpc.RequestKey(cl.r.Params)
	return key != "" && p.keys != nil && p.keys.Has(p.session.Sandbox, key)
}

func isTransferCall(method string) bool {
	switch method {
	case rpc.MethodTransferResult, rpc.MethodTransferCommit, rpc.MethodTransferAbort:
		return true
	}
	return false
}

// cancelCall cancels the call with that id, if there is one.
func (c *conn) cancelCall(id []byte) {
	c.mu.Lock()
	cl := c.calls[idKey(id)]
	c.mu.Unlock()
	if cl == nil || cl.cancel == nil {
		return
	}
	cl.cancel(errAsked)
	if c.peer.lane.remove(cl) {
		cl.fail(sandbox.Cancelled(cl.ctx, cl.r.Method, ""))
		cl.done()
	}
}

// dropQueued cancels the calls of this connection that have not started.
func (c *conn) dropQueued() {
	if c.peer == nil {
		return
	}
	for _, cl := range c.peer.lane.removeAll(c) {
		cl.fail(sandbox.Cancelled(cl.ctx, cl.r.Method, ""))
		cl.done()
	}
}
