package server

import (
	"context"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server/gate"
	"github.com/controld/controld/sandbox"
)

// greet answers a request before a successful hello.
func (c *conn) greet(r *rpc.Request) (*rpc.Message, step) {
	fail := func(err error, next step) (*rpc.Message, step) {
		return rpc.NewError(r.ID, r.Method, "", err), next
	}
	switch {
	case r.Err != nil && r.Err.Kind == sandbox.KindInvalidRequest:
		return fail(r.Err, goOn)
	case r.Method == rpc.MethodPing && r.Err == nil:
		return rpc.NewResult(r.ID, &rpc.Empty{}), goOn
	case r.Method != rpc.MethodHello:
		return fail(&sandbox.Error{Kind: sandbox.KindUnauthenticated, Message: "hello comes first"}, goOn)
	}
	p := r.Params.(*rpc.HelloParams)
	switch {
	case p.Protocol < 0:
		return fail(&sandbox.Error{Kind: sandbox.KindUnsupported, Message: "unsupported protocol version",
			Protocols: []int{rpc.ProtocolVersion}}, hangUp)
	case r.Err != nil:
		return fail(r.Err, goOn)
	case p.NoToken && !c.s.cfg.CertificateLogin:
		return fail(&sandbox.Error{Kind: sandbox.KindInvalidParams, Message: "token is missing"}, goOn)
	case p.Mux != "" && p.Mux != rpc.MuxYamux:
		return fail(&sandbox.Error{Kind: sandbox.KindInvalidRequest, Message: "mux must be \"yamux\""}, goOn)
	case c.s.isDraining():
		return fail(unavailable(sandbox.ReasonDraining, sandbox.OutcomeNone), goOn)
	}
	session, next, err := c.authenticate(p)
	if err != nil {
		return fail(err, next)
	}
	c.peer = newPeer(c.s, session, c.nc.LocalAddr(), p.Mux != "")
	c.lines.SetMost(int(c.s.cfg.Limits.MaxMessageBytes))
	if c.peer.mux {
		return rpc.NewResult(r.ID, c.peer.greeting()), upgrade
	}
	return rpc.NewResult(r.ID, c.peer.greeting()), goOn
}

// authenticate lets a guest in, or says how the connection goes on without.
func (c *conn) authenticate(p *rpc.HelloParams) (*Session, step, error) {
	doors := c.s.cfg.Gate
	if wait := doors.Wait(gate.Hello, c.guest.Source); wait > 0 {
		return nil, hangUp, &sandbox.Error{Kind: sandbox.KindResourceExhausted, Message: "too many failed hellos came from there",
			Limit: sandbox.Some(int64(doors.Allowed(gate.Hello))), RetryAfter: wait}
	}
	session, err := c.open(*p)
	c.auditHello(p, session, err)
	if sandbox.KindOf(err) == sandbox.KindUnauthenticated {
		doors.Failed(gate.Hello, c.guest.Source)
		return nil, hangUp, err
	}
	if err != nil {
		return nil, goOn, err
	}
	c.guest.place.Leave()
	return session, goOn, nil
}

// open asks the host, within the time a hello has.
func (c *conn) open(p rpc.HelloParams) (*Session, error) {
	deadline := c.deadline
	if longer := time.Now().Add(c.s.cfg.OpenTimeout); longer.After(deadline) {
		deadline = longer
		c.hello.Reset(time.Until(deadline))
	}
	ctx, cancel := context.WithDeadline(c.ctx, deadline)
	defer cancel()
	session, err := c.s.cfg.Host.Open(ctx, p, c.guest.Visitor)
	if err != nil {
		if deadline != c.deadline {
			c.hello.Reset(time.Until(c.deadline))
		}
		return nil, err
	}
	if !c.hello.Stop() {
		if session.Release != nil {
			session.Release()
		}
		return nil, unavailable("", sandbox.OutcomeNone)
	}
	return session, nil
}
