package server

import (
	"sync"
	"time"
)

// reliefTick is how often it is looked whether a reader is held up by a call.
// Two ticks later another goroutine reads on.
const reliefTick = 10 * time.Millisecond

// idleTicks is how many ticks without a call the look goes on.
const idleTicks = 50

// relief sees to connections whose reader does a call by itself: that saves
// waking a goroutine, which costs more than the call, but it must not hold up
// what comes behind. It looks after them as long as there are such calls.
type relief struct {
	mu     sync.Mutex
	shifts map[*shift]struct{} // under way
	awake  bool                // somebody looks
}

// shift is one call that the reader of a connection does by itself.
type shift struct {
	c    *conn
	seen bool
	// over is closed when the connection has ended at the hands of another
	// goroutine; nil while the reader is not relieved.
	over chan struct{}
}

// begin starts a shift. It must be ended.
func (s *Server) begin(c *conn) *shift {
	r, sh := &s.relief, &shift{c: c}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shifts == nil {
		r.shifts = make(map[*shift]struct{})
	}
	r.shifts[sh] = struct{}{}
	if !r.awake {
		// The connection holds the server open until the look has begun.
		r.awake = true
		s.all.Go(s.relieve)
	}
	return sh
}

// end ends a shift. It returns nil where the reader goes on, else what is
// closed when the connection has ended without it.
func (s *Server) end(sh *shift) <-chan struct{} {
	s.relief.mu.Lock()
	defer s.relief.mu.Unlock()
	delete(s.relief.shifts, sh)
	return sh.over
}

// relieve has others read on where a reader is held up, until there was nothing
// to look after for a while.
func (s *Server) relieve() {
	tick := time.NewTicker(reliefTick)
	defer tick.Stop()
	quit := s.quit
	for idle := 0; ; idle++ {
		select {
		case <-tick.C:
		case <-quit:
			quit, idle = nil, idleTicks
		}
		held, busy := s.relief.look(idle >= idleTicks)
		switch {
		case busy && quit != nil:
			idle = 0
		case !busy && idle >= idleTicks:
			return
		}
		for _, sh := range held {
			s.all.Go(func() {
				defer close(sh.over)
				sh.c.attend()
			})
		}
	}
}

// look returns the shifts that were under way at the last look already, and
// whether there are any. Where there are none it may be the last look.
func (r *relief) look(last bool) (held []*shift, busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	busy = len(r.shifts) > 0
	r.awake = busy || !last
	for sh := range r.shifts {
		if sh.seen {
			sh.over = make(chan struct{})
			delete(r.shifts, sh)
			held = append(held, sh)
		}
		sh.seen = true
	}
	return held, busy
}
