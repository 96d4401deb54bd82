package server

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/controld/controld/dataport"
)

// serveMux goes on with yamux behind the answer to hello, until the session
// ends.
func (c *conn) serveMux() {
	if c.w.Flush() != nil {
		return
	}
	nc := c.nc
	if rest := c.lines.Rest(); len(rest) > 0 {
		nc = &peekedConn{Conn: nc, first: append([]byte(nil), rest...)}
	}
	session, err := dataport.MuxServer(nc, c.s.cfg.Limits.WriteTimeout)
	if err != nil {
		return
	}
	defer session.Close()
	over := make(chan struct{})
	c.mu.Lock()
	c.muxed = over
	ended := c.ending != nil
	c.mu.Unlock()
	if ended {
		return
	}
	var streams workload
	var all sync.WaitGroup
	defer all.Wait()
	defer session.Close()
	defer context.AfterFunc(c.ctx, func() { session.Close() })()
	all.Go(func() { c.endMux(session, over, &streams) })
	places := make(chan struct{}, c.s.cfg.MaxStreams)
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
		default:
			stream.Close()
			continue
		}
		streams.add(1)
		all.Go(func() {
			c.serveStream(dataport.NewMuxStream(stream))
			streams.add(-1)
			<-places
		})
	}
}

// endMux closes a session that is to end, behind the last answers on its
// streams.
func (c *conn) endMux(session *yamux.Session, over <-chan struct{}, streams *workload) {
	select {
	case <-session.CloseChan():
		return
	case <-over:
	}
	session.GoAway()
	c.waitLast(c.ctx)
	ctx, cancel := context.WithTimeout(c.ctx, 2*c.s.cfg.LingerTime)
	defer cancel()
	streams.wait(ctx)
	session.Close()
}

// serveStream serves one stream of a session.
func (c *conn) serveStream(nc net.Conn) {
	first, nc, err := peek(nc)
	switch {
	case err != nil || planeOf(first) == 0:
		nc.Close()
	case planeOf(first) == Data:
		nc.SetReadDeadline(time.Now().Add(c.s.cfg.HelloTimeout))
		c.s.serveData(c.ctx, nc, c.peer.binding(), c.guest)
	default:
		newConn(c.s, nc, c.peer, c.guest).serve(c.ctx, time.Time{})
	}
}
