package rpc

import (
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/controld/controld/sandbox"
)

// read is the goroutine that decodes answers; it outlives the connection by
// as much as it takes to tell every call.
func (c *Conn) read() {
	lines := NewLineReader(watchedReader{c}, 0)
	lines.eager = true
	for {
		lines.SetMost(int(c.most.Load()))
		line, err := lines.Next()
		if err == nil {
			err = c.answer(line)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server closed the connection")
			}
			c.shut(err)
			break
		}
	}
	lines.Release()
	c.ping.stop()
	c.w.Wait()
	c.failPending()
	close(c.done)
}

// watchedReader notes when something came.
type watchedReader struct{ c *Conn }

func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.c.conn.Read(p)
	if n > 0 {
		r.c.lastRead.Store(time.Now().UnixNano())
	}
	return n, err
}

// answer hands one reply to its call. An error ends the connection.
func (c *Conn) answer(line []byte) error {
	var cl *call
	a := parseAnswer(line, func(id []byte) Result {
		if cl == nil {
			cl = c.claim(id)
		}
		if cl == nil {
			return nil
		}
		return cl.result
	})
	switch {
	case cl == nil && a.fault != nil:
		return a.fault
	case cl == nil && a.err != nil && (a.id == nil || string(a.id) == "null"):
		return a.err // the server could not tell whose fault it was
	case cl == nil:
		return nil // an answer that nobody waits for any more
	case a.fault != nil:
		cl.err = &sandbox.Error{Kind: sandbox.KindInternal, Outcome: sandbox.OutcomeUnknown,
			Message: "bad answer: " + a.fault.Text()}
	case a.err != nil:
		cl.err = a.err
	case !a.result:
		cl.err = &sandbox.Error{Kind: sandbox.KindInternal, Outcome: sandbox.OutcomeUnknown,
			Message: "bad answer: neither result nor error"}
	}
	cl.finish()
	if a.fault != nil && a.fault.Kind == sandbox.KindParseError {
		return a.fault
	}
	return nil
}

// claim takes the call with that id off the pending ones.
func (c *Conn) claim(raw []byte) *call {
	id, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.pending[id]
	delete(c.pending, id)
	return cl
}

// shut ends the connection; the reading goroutine sees to the rest.
func (c *Conn) shut(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
	}
	c.mu.Unlock()
	if first {
		c.w.Fail(err)
		c.conn.Close()
	}
}

// failPending tells every call in flight. The writer has stopped, so that it
// is known which of them never left.
func (c *Conn) failPending() {
	c.mu.Lock()
	lost := c.pending
	c.pending = nil // nothing is registered any more
	c.mu.Unlock()
	for _, cl := range lost {
		cl.err = errLost
		if cl.msg != nil && c.w.unsent(cl.msg) {
			cl.err = errUnsent
		}
		cl.finish()
	}
}
