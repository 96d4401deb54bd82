package server

import (
	"context"
	"errors"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
	"github.com/controld/controld/work"
)

// errand is the work of a call that is done apart from it, with a context of its
// own. Calls wait for it.
type errand struct {
	*work.Task
	// What came of it. They stand when the task is done.
	result rpc.Result
	err    error
	held   int64              // of the tenant's budget, for the first call to take over
	minted *transfer.Transfer // to be handed out by each call that waited

	doer  *call // does the work
	after func(*errand)
}

// errAsked is the cause of the cancel of a call that the client asked for.
var errAsked = askedError{}

type askedError struct{}

func (askedError) Error() string { return "cancelled by the client" }

func (askedError) Is(target error) bool { return target == context.Canceled }

// newErrand takes the work of a call off it; after, which may be nil, runs behind
// it.
func (cl *call) newErrand(terms work.Terms, after func(*errand)) *errand {
	d := &errand{Task: cl.c.s.tasks.New(terms), err: unavailable(sandbox.ReasonDraining, sandbox.OutcomeNone), after: after}
	d.doer = &call{c: cl.c, r: cl.r, held: cl.held, errand: d, begun: func() {}}
	cl.held = 0
	return d
}

// start opens what the errand needs and returns what runs it, which does nothing
// when the server is closed.
func (d *errand) start() (run func()) {
	s, session := d.doer.c.s, d.doer.c.peer.session
	select {
	case <-d.Done():
		return func() {}
	default:
	}
	s.work.add(1)
	s.budgets.open(session.Tenant)
	if d.doer.r.Method != rpc.MethodExec {
		return func() { d.Run(d.do) }
	}
	e := s.execs.Register(work.Owner{Tenant: session.Tenant, Sandbox: session.Sandbox}, d.Task)
	return func() { e.Run(d.doExec) }
}

// doExec is do for a command.
func (d *errand) doExec(ctx context.Context, begun func()) (sandbox.ShellResult, error) {
	d.doer.begun = begun
	d.do(ctx)
	if r, ok := d.result.(*rpc.ExecResult); ok {
		return r.Shell, d.err
	}
	return sandbox.ShellResult{}, d.err
}

// do does the work. It may outlive the tenant's connections.
func (d *errand) do(ctx context.Context) {
	s, tenant := d.doer.c.s, d.doer.c.peer.session.Tenant
	d.doer.ctx = ctx
	d.result, d.err = d.doer.perform()
	d.held = d.doer.held
	if d.after != nil {
		d.after(d)
	}
	d.doer, d.after = nil, nil // what is kept shall not hold them
	s.budgets.close(tenant)
	s.work.add(-1)
}

// perform does the work; a panic is an error like any other.
func (cl *call) perform() (result rpc.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			result, err = nil, cl.c.s.incident("panic in a call", cl.r.Method, v)
		}
	}()
	return cl.do()
}

// execApart is an exec without a key: a cancel and the end of the connection
// end it, and it is waited for.
func (cl *call) execApart() (rpc.Result, error) {
	d := cl.newErrand(work.Terms{}, nil)
	// On this goroutine: to be woken by another takes longer.
	stop := context.AfterFunc(cl.ctx, func() { d.Cancel(context.Cause(cl.ctx)) })
	d.start()()
	stop()
	cl.held += d.held
	return d.result, d.err
}

// keyed is a call with a request key: the first with it, or once more.
func (cl *call) keyed(key string) (rpc.Result, error) {
	p := cl.c.peer
	params := rpc.HashParams(cl.c.s.seed, cl.r.Method, cl.r.Params)
	c, first, err := p.keys.Begin(p.session.Sandbox, p.life(), key, params, func(c *work.Call) any { return cl.newKeyed(c) })
	if err != nil {
		return nil, err
	}
	d := c.Work.(*errand)
	switch {
	case !first:
		d.Join()
		cl.giveBack(0)
	case cl.r.Method == rpc.MethodExec:
		return cl.lead(d)
	default:
		// What is short is not worth another goroutine: a lost connection
		// waits for its end instead.
		stop := context.AfterFunc(cl.ctx, func() { cl.quit(d) })
		d.start()()
		if stop() {
			d.Leave()
		}
		return cl.share(d)
	}
	if err := cl.attend(d); err != nil {
		return nil, err
	}
	return cl.share(d)
}

// errDeserted is what comes of a call that has ended before its work.
var errDeserted = errors.New("the call has ended")

// lead runs the work on this goroutine, since to be woken by another takes
// longer. Where the connection is lost first the call ends at another's hands,
// and the work goes on here.
func (cl *call) lead(d *errand) (rpc.Result, error) {
	stop := context.AfterFunc(cl.ctx, func() {
		if errors.Is(context.Cause(cl.ctx), errAsked) {
			d.Cancel(errAsked)
		} else if cl.isFirst() {
			d.Leave()
			cl.desert(unavailable(sandbox.ReasonLinkLost, sandbox.OutcomeUnknown))
		}
	})
	d.start()()
	stop()
	if !cl.isFirst() {
		return nil, errDeserted
	}
	d.Leave()
	return cl.share(d)
}

// desert ends the call before its work.
func (cl *call) desert(err error) {
	cl.audit(nil, err)
	cl.end(cl.error(err)).runAll()
}

// newKeyed is the work of a call with a key, which knows its answer afterwards.
func (cl *call) newKeyed(c *work.Call) *errand {
	peer := cl.c.peer
	terms := work.Terms{Grace: cl.c.s.cfg.Limits.ReconnectGrace}
	if p, ok := cl.r.Params.(*rpc.ExecParams); ok {
		terms.Detach = p.Options.Detach
	}
	if !peer.passesKeys {
		rpc.DropRequestKey(cl.r.Params)
	}
	return cl.newErrand(terms, func(d *errand) {
		if refusedUnbegun(d.err) {
			c.Undone()
		} else {
			c.Done(answerSize(d))
		}
		peer.budget.give(d.held) // it is charged as a kept answer now
	})
}

// refusedUnbegun tells whether an error says that the work never began and may
// be tried again: a quota, or a sandbox that takes nothing more.
func refusedUnbegun(err error) bool {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Kind == sandbox.KindResourceExhausted ||
		e.Kind == sandbox.KindUnavailable && e.Reason == sandbox.ReasonDraining && e.Outcome == sandbox.OutcomeNone
}

// attend waits for the end of the work.
func (cl *call) attend(d *errand) error {
	select {
	case <-d.Done():
		d.Leave()
		return nil
	case <-cl.ctx.Done():
	}
	if cl.quit(d) {
		<-d.Done()
		return nil
	}
	return unavailable(sandbox.ReasonLinkLost, sandbox.OutcomeUnknown)
}

// quit ends the waiting of a call whose context has ended. A cancel that the
// client asked for ends the work, for all that wait for it.
func (cl *call) quit(d *errand) (asked bool) {
	if asked = errors.Is(context.Cause(cl.ctx), errAsked); asked {
		d.Cancel(errAsked)
	}
	d.Leave()
	return asked
}

// share makes this call's answer of what came of the work.
func (cl *call) share(d *errand) (rpc.Result, error) {
	switch r := d.result.(type) {
	case *rpc.StreamResult:
		if d.minted == nil {
			break
		}
		token, err := cl.c.s.cfg.Transfers.Renew(d.minted, cl.c.minted())
		if err != nil {
			return nil, err
		}
		own := *r
		own.Transfer = cl.ticket(d.minted, token)
		return &own, nil
	case *rpc.ExecResult:
		if err := cl.take(int64(len(r.Shell.Stdout) + len(r.Shell.Stderr))); err != nil {
			return nil, err
		}
	}
	return d.result, d.err
}

// answerSize is about what a kept answer takes.
func answerSize(d *errand) int64 {
	const rest = 512
	var e *sandbox.Error
	switch r, ok := d.result.(*rpc.ExecResult); {
	case ok:
		return rest + int64(len(r.Shell.Stdout)+len(r.Shell.Stderr))
	case errors.As(d.err, &e):
		return rest + int64(len(e.Path)+len(e.Message))
	}
	return rest
}
