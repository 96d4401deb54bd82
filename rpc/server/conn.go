package server

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// conn is one control connection, or one control stream of a multiplexed
// session. The goroutine of serve reads; calls run on their own, or on the
// reader's where they are short and alone, and answer through the writer.
type conn struct {
	s     *Server
	nc    net.Conn
	lines *rpc.LineReader
	w     *rpc.Writer
	peer  *peer // set by hello
	own   bool  // the peer came with a hello here
	// leave ends the connection's part in the life of its sandbox.
	leave func()
	// next is the call that the reader does by itself behind its line, prompt
	// how many there were that it could have done.
	next   *call
	prompt int
	guest  *guest
	// hello ends the connection when none came in time; nil for a stream.
	hello    *time.Timer
	deadline time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	all    sync.WaitGroup // the calls

	mu     sync.Mutex
	calls  map[string]*call // those not answered, by id
	group  *transfer.Group  // what was minted here
	ending *sandbox.Error   // what ends the connection from outside
	gone   bool             // nothing is accepted any more
	muxed  chan struct{}    // of a session: closed when ending is set
}

// step says how a connection goes on behind a line.
type step int

const (
	goOn     step = iota
	hangUp        // close behind the last answer
	upgrade       // both sides speak yamux from now on
	relieved      // another goroutine has read on, to the end
)

func newConn(s *Server, nc net.Conn, p *peer, g *guest) *conn {
	c := &conn{s: s, nc: nc, peer: p, guest: g}
	c.lines = rpc.NewLineReader(nc, rpc.MaxHelloLine)
	c.w = rpc.NewWriter(nc, s.cfg.Limits.WriteTimeout, func(error) { dataport.Bare(nc).Close() })
	return c
}

// serve runs the connection and closes it.
func (c *conn) serve(ctx context.Context, deadline time.Time) {
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	c.nc.SetReadDeadline(time.Time{})
	c.s.track(func() { c.s.controls[c] = struct{}{} })
	defer c.s.untrack(func() { delete(c.s.controls, c) })
	if c.peer != nil {
		c.lines.SetMost(int(c.s.cfg.Limits.MaxMessageBytes))
		c.leave = c.s.epochs.join(c.peer.session.Closed, c.epochEnded)
	} else {
		c.deadline = deadline
		c.hello = time.AfterFunc(time.Until(deadline), func() { c.nc.Close() })
		defer c.hello.Stop()
	}
	c.attend()
}

// attend reads the connection and ends it. Where the reader is relieved on the
// way that is done by another goroutine, and waited for.
func (c *conn) attend() {
	next, err := c.read()
	if next == relieved {
		return
	}
	c.finish(next, err)
	if c.leave != nil {
		c.leave()
	}
	if c.own {
		c.peer.release()
	}
}

// onItsOwnStack acts on a line. Hello needs a deep stack, which an idle
// connection would keep: it has one of its own.
func (c *conn) onItsOwnStack(stranger bool, line []byte) (next step) {
	if !stranger {
		return c.safeLine(line)
	}
	done := make(chan step)
	go func() { done <- c.safeLine(line) }()
	return <-done
}

// safeLine ends the connection when a line makes the server panic.
func (c *conn) safeLine(line []byte) (next step) {
	defer func() {
		if v := recover(); v != nil {
			c.refuse(c.s.incident("panic in a connection", "", v))
			next = hangUp
		}
	}()
	return c.line(line)
}

// read takes lines until the connection shall end.
func (c *conn) read() (step, error) {
	for {
		if err := c.w.WaitBelow(c.s.cfg.UnreadReplies); err != nil {
			return goOn, err
		}
		line, err := c.lines.Next()
		if errors.Is(err, rpc.ErrLineTooLong) {
			c.refuse(&sandbox.Error{Kind: sandbox.KindMessageTooLarge, Limit: sandbox.Some(c.maxLine())})
			return hangUp, nil
		}
		if err != nil {
			return goOn, err
		}
		stranger := c.peer == nil
		next := c.onItsOwnStack(stranger, line)
		if stranger && c.peer != nil {
			c.own = true
			c.leave = c.s.epochs.join(c.peer.session.Closed, c.epochEnded)
		}
		if next == goOn && c.next != nil {
			next = c.work()
		}
		if next == upgrade {
			c.serveMux()
		}
		if next != goOn {
			return next, nil
		}
	}
}

// work does the next call. What it lets in goes its own way.
func (c *conn) work() step {
	cl := c.next
	c.next = nil
	sh := c.s.begin(c)
	if after := cl.run(); after != nil {
		go after.runAll()
	}
	over := c.s.end(sh)
	if over == nil {
		return goOn
	}
	<-over
	return relieved
}

func (c *conn) maxLine() int64 {
	if c.peer == nil {
		return rpc.MaxHelloLine
	}
	return c.s.cfg.Limits.MaxMessageBytes
}

// finish ends what the connection started, in the order in which nothing is
// lost: calls are cancelled and answered, answers written, then it closes.
func (c *conn) finish(next step, err error) {
	c.s.leaving.add(1)
	defer c.s.leaving.add(-1)
	c.lines.Release()
	c.mu.Lock()
	ending, group := c.ending, c.group
	c.gone = true
	c.mu.Unlock()
	if group != nil {
		group.Close()
	}
	if ending == nil && next == goOn && !errors.Is(err, io.EOF) {
		c.w.Fail(err) // nobody is there to read an answer
		c.nc.Close()
	}
	c.cancel(context.Canceled)
	c.dropQueued()
	switch {
	case ending == nil:
		c.all.Wait()
	case ending.Reason != sandbox.ReasonDraining:
		c.waitLast(context.Background())
	}
	c.w.Flush()
	if next == hangUp || ending != nil {
		c.linger()
	}
	c.w.Fail(nil)
	c.nc.Close()
	c.w.Wait()
	c.all.Wait()
}

// linger lets the peer read the last answer: a close with unread input would
// reset the connection and eat it.
func (c *conn) linger() {
	closeWrite(c.nc)
	c.nc.SetReadDeadline(time.Now().Add(c.s.cfg.LingerTime))
	var drop [4 << 10]byte
	for n := 0; n < dataport.LingerBytes; {
		got, err := c.nc.Read(drop[:])
		n += got
		if err != nil {
			return
		}
	}
}

// epochEnded is called when the life of the sandbox ends.
func (c *conn) epochEnded() {
	reason := sandbox.ReasonSandboxRestarted
	if why := c.peer.session.Reason; why != nil {
		reason = why()
	}
	c.end(unavailable(reason, sandbox.OutcomeUnknown))
}

// end answers every call in flight with err and closes the connection behind
// the answers. The work of the calls is cancelled.
func (c *conn) end(err *sandbox.Error) {
	c.mu.Lock()
	if c.ending != nil {
		c.mu.Unlock()
		return
	}
	c.ending, c.gone = err, true
	if c.muxed != nil {
		// The streams end by themselves, and then the session does.
		close(c.muxed)
		c.mu.Unlock()
		return
	}
	calls := make([]*call, 0, len(c.calls))
	for _, cl := range c.calls {
		calls = append(calls, cl)
	}
	c.mu.Unlock()
	for _, cl := range calls {
		if !cl.outlives(err) {
			cl.fail(err)
		}
	}
	c.cancel(err)
	c.nc.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
}

// refuse answers something that has no id.
func (c *conn) refuse(err *sandbox.Error) {
	c.w.Send(rpc.NewError(nil, err.Op, "", err))
}

// minted is the group of the transfers minted here.
func (c *conn) minted() *transfer.Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group == nil {
		c.group = transfer.NewGroup(c.peer.binding())
		if c.gone {
			c.group.Close()
		}
	}
	return c.group
}
