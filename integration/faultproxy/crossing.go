package faultproxy

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// crossing is one connection on its way through the proxy.
type crossing struct {
	p              *Proxy
	plan           Plan
	client, server net.Conn
	began          time.Time
	swallow        atomic.Bool // pass nothing on any more
}

// most is how many bytes are taken at once.
const most = 32 << 10

// pump passes one direction on until its end, or its fault.
func (c *crossing) pump(d Direction) {
	from, to := c.client, c.server
	if d == Down {
		from, to = to, from
	}
	size := most
	if c.plan.Segment > 0 {
		size = c.plan.Segment
	}
	var passed int64
	for buf := make([]byte, size); ; {
		if c.due(d, passed) && !c.strike(from) {
			return
		}
		n, err := from.Read(buf[:c.room(d, passed, size)])
		if n > 0 {
			c.damage(d, passed, buf[:n])
			if !c.swallow.Load() {
				if _, err := to.Write(buf[:n]); err != nil {
					drain(from)
					return
				}
			}
			passed += int64(n)
			c.pace(passed)
		}
		if err != nil {
			c.pass(err, to)
			return
		}
	}
}

// due tells whether the fault of this direction strikes now. That of a bit
// strikes with its byte.
func (c *crossing) due(d Direction, passed int64) bool {
	f := c.plan.Fault
	return f.Kind != None && f.Kind != Flip && f.Direction == d && f.At == passed && !c.swallow.Load()
}

// room is how many bytes may be taken before the fault.
func (c *crossing) room(d Direction, passed int64, size int) int {
	f := c.plan.Fault
	if f.Kind == None || f.Kind == Flip || f.Direction != d || f.At <= passed {
		return size
	}
	return int(min(int64(size), f.At-passed))
}

// strike does what the fault says and tells whether the direction goes on.
func (c *crossing) strike(from net.Conn) bool {
	c.p.note(c.plan.Fault)
	switch c.plan.Fault.Kind {
	case FIN:
		c.swallow.Store(true) // what comes now is read: unread, it would reset
		closeWrite(c.client)
		closeWrite(c.server)
		return true
	case BlackHole:
		c.swallow.Store(true)
		return true
	case Stall:
		<-c.p.ctx.Done()
	case RST:
		c.reset()
	}
	return false
}

// damage turns the bit of a Flip where its byte is in b.
func (c *crossing) damage(d Direction, passed int64, b []byte) {
	f := c.plan.Fault
	if i := f.At - passed; f.Kind == Flip && f.Direction == d && i >= 0 && i < int64(len(b)) {
		b[i] ^= 1 << (f.Bit & 7)
		c.p.note(f)
	}
}

// pace waits until so many bytes may have passed.
func (c *crossing) pace(passed int64) {
	if c.plan.Rate <= 0 {
		return
	}
	due := c.began.Add(time.Duration(float64(passed) / float64(c.plan.Rate) * float64(time.Second)))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.p.ctx.Done():
	}
}

// pass passes an end on as what it was.
func (c *crossing) pass(end error, to net.Conn) {
	switch {
	case c.swallow.Load():
	case end == io.EOF:
		closeWrite(to)
	default:
		c.reset()
	}
}

// reset ends both sides at once.
func (c *crossing) reset() {
	reset(c.client)
	reset(c.server)
}

func (c *crossing) close() {
	c.client.Close()
	c.server.Close()
}

// drain reads what a sender still has to say to nobody, so that it learns of
// the end from the other side and not from a reset of ours.
func drain(from net.Conn) { io.Copy(io.Discard, from) }

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// reset closes conn with a reset where its transport has one.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
