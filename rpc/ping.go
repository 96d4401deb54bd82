package rpc

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errSilent ends a connection whose server does not answer pings.
var errSilent = errors.New("the server does not answer")

// pinger finds dead servers: a connection that was silent for PingInterval
// sends a ping, and ends when PingTimeout brings no sign of life. Anything
// that moves is one: a byte that came, or a byte that the server took.
type pinger struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	waiting *call // the ping in flight
	sent    time.Time
}

func (p *pinger) start(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(c.opts.PingInterval, func() { p.tick(c) })
}

func (p *pinger) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
}

func (p *pinger) tick(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	read, wrote := c.lastRead.Load(), c.w.last.Load()
	if p.waiting != nil {
		select {
		case <-p.waiting.done:
			p.waiting.msg.release()
			p.waiting = nil
		default:
			left := c.opts.PingTimeout - time.Since(latest(p.sent, read, wrote))
			if left <= 0 {
				c.shut(errSilent)
				return
			}
			p.timer.Reset(left)
			return
		}
	}
	quiet := time.Since(time.Unix(0, min(read, wrote)))
	if left := c.opts.PingInterval - quiet; left > 0 {
		p.timer.Reset(left)
		return
	}
	cl := &call{result: dropped{}, done: make(chan struct{}, 1)}
	if _, err := c.submit(context.Background(), cl, MethodPing, "", nil); err != nil {
		return
	}
	p.waiting, p.sent = cl, time.Now()
	p.timer.Reset(c.opts.PingTimeout)
}

func latest(t time.Time, nanos ...int64) time.Time {
	for _, n := range nanos {
		if u := time.Unix(0, n); u.After(t) {
			t = u
		}
	}
	return t
}
