package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// call is one request in flight. It is answered exactly once.
type call struct {
	c      *conn
	r      *rpc.Request
	key    string // of its id among the calls in flight
	batch  *batch
	slot   int
	alone  bool // there was no other call in flight
	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc

	answered bool // guarded by the connection

	// Guarded by the lane:
	running bool // holds a place among those that run
	counted *int // holds a place among those that wait for transfers
	texted  bool // its text is counted as waiting

	// held is what the call has of the tenant's budget, owed what its params
	// still need.
	held, owed int64
	// lent gives the content of the answer back to its pool, if it is from one.
	lent func()

	// errand is set on the one that does the work of a call apart from it, begun
	// on that of an exec: it is told when the backend has the command.
	errand *errand
	begun  func()

	// awaited is the transfer whose end a transfer_result tells.
	awaited *transfer.Transfer

	over atomic.Bool
}

// charge takes the budget for what came with the call, if it is free.
func (cl *call) charge() {
	n := int64(0)
	switch p := cl.r.Params.(type) {
	case *rpc.WriteParams:
		n = int64(len(p.Content))
	case *rpc.ExecParams:
		n = int64(len(p.Options.Stdin))
	}
	if n == 0 {
		return
	}
	if got, ok := cl.c.peer.budget.try(n); ok {
		cl.held = got
	} else {
		cl.owed = n
	}
}

// take waits for n more bytes of the budget.
func (cl *call) take(n int64) error {
	got, err := cl.c.peer.budget.take(cl.ctx, n)
	cl.held += got
	return err
}

// giveBack returns all but n bytes to the budget.
func (cl *call) giveBack(n int64) {
	if cl.held > n {
		cl.c.peer.budget.give(cl.held - n)
		cl.held = n
	}
}

// runAll runs the call and then those that take its place.
func (cl *call) runAll() {
	for cl != nil {
		cl = cl.run()
	}
}

// awaitEnd runs a transfer_result when its transfer has ended, or the call is
// cancelled. No goroutine waits for that.
func (cl *call) awaitEnd() {
	t, err := cl.find(cl.r.Params.(*rpc.TransferParams).ID)
	if err != nil {
		cl.end(cl.error(err))
		return
	}
	cl.awaited = t
	run := func() {
		if cl.isFirst() {
			cl.runAll()
		}
	}
	stop := context.AfterFunc(cl.ctx, func() {
		t.Forget(cl)
		run()
	})
	if !t.AfterEnd(cl, func() { stop(); run() }) {
		stop()
		run()
	} else if cl.ctx.Err() != nil {
		t.Forget(cl)
	}
}

// isFirst is true once, for the first of two that may end the call.
func (cl *call) isFirst() bool { return cl.over.CompareAndSwap(false, true) }

// run runs the call, answers it and returns the one that takes its place.
func (cl *call) run() *call {
	m := cl.execute()
	if m == nil {
		return nil // deserted: it has ended already
	}
	return cl.end(m)
}

// end answers the call and returns the one that takes its place.
func (cl *call) end(m *rpc.Message) *call {
	next := cl.c.peer.lane.leave(cl)
	cl.answer(m)
	cl.done()
	return next
}

// done ends the life of a call that was admitted and has been answered.
func (cl *call) done() {
	cl.giveBack(0)
	cl.cancel(nil)
	if cl.r.Method == rpc.MethodSandboxRemove {
		cl.c.peer.last.add(-1)
	}
	cl.c.s.work.add(-1)
	cl.c.all.Done()
}

// execute does the work and makes the answer, which owns the budget of what
// it refers to; nil where the call was deserted.
func (cl *call) execute() (m *rpc.Message) {
	cl.began = time.Now()
	defer func() {
		if v := recover(); v != nil {
			m = cl.incident(v)
			cl.audit(nil, &sandbox.Error{Kind: sandbox.KindInternal})
		}
	}()
	if cl.owed > 0 {
		if err := cl.take(cl.owed); err != nil {
			return cl.error(err)
		}
		cl.c.peer.lane.paid(cl)
	}
	result, err := cl.outcome()
	if errors.Is(err, errDeserted) {
		return nil
	}
	cl.audit(result, err)
	if err != nil {
		return cl.error(err)
	}
	m = rpc.NewResult(cl.r.ID, result)
	if most := cl.c.maxReply(); m.Size() > most {
		m.Drop()
		return cl.error(&sandbox.Error{Kind: sandbox.KindTooLarge, Limit: sandbox.Some(most),
			Message: "the answer is longer than a message may be"})
	}
	if held, lent, b := cl.held, cl.lent, cl.c.peer.budget; held > 0 {
		cl.held = 0
		m.OnRelease(func() {
			if lent != nil {
				lent()
			}
			b.give(held)
		})
	}
	return m
}

// outcome does the work, or has it done apart from the call.
func (cl *call) outcome() (rpc.Result, error) {
	if key := rpc.RequestKey(cl.r.Params); key != "" {
		return cl.keyed(key)
	}
	if cl.r.Method == rpc.MethodExec {
		return cl.execApart()
	}
	return cl.do()
}

// incident is the answer to a call whose work panicked.
func (cl *call) incident(v any) *rpc.Message {
	return cl.error(cl.c.s.incident("panic in a call", cl.r.Method, v))
}

// incident logs a panic and returns what the client is told of it.
func (s *Server) incident(what, method string, v any) *sandbox.Error {
	id := uuid.NewString()
	s.cfg.Log(what, "incident", id, "method", method, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return &sandbox.Error{Kind: sandbox.KindInternal, Outcome: sandbox.OutcomeUnknown,
		Message: "internal error, incident " + id}
}

func (cl *call) error(err error) *rpc.Message {
	m := rpc.NewError(cl.r.ID, cl.r.Method, pathOf(cl.r.Params), err)
	if most := cl.c.maxReply(); m.Size() > most {
		m.Drop() // a path may be almost as long as a message
		return rpc.NewError(cl.r.ID, cl.r.Method, "", tooLarge(most))
	}
	return m
}

// fail answers the call with an error.
func (cl *call) fail(err *sandbox.Error) { cl.answer(cl.error(err)) }

// answer sends the answer, unless the call has one.
func (cl *call) answer(m *rpc.Message) {
	c := cl.c
	c.mu.Lock()
	if cl.answered {
		c.mu.Unlock()
		m.Drop()
		return
	}
	cl.answered = true
	delete(c.calls, cl.key)
	c.mu.Unlock()
	c.put(m, cl.batch, cl.slot)
}

func pathOf(p rpc.Params) string {
	switch p := p.(type) {
	case *rpc.ReadParams:
		return p.Path
	case *rpc.WriteParams:
		return p.Path
	case *rpc.StatParams:
		return p.Path
	case *rpc.ReadDirParams:
		return p.Path
	case *rpc.ExistsParams:
		return p.Path
	case *rpc.MkdirParams:
		return p.Path
	case *rpc.RmParams:
		return p.Path
	}
	return ""
}
