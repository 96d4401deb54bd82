package server

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc/server/gate"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/work"
)

// ErrServerClosed is what Serve returns after Close.
var ErrServerClosed = errors.New("server: closed")

// Server serves connections until it is closed.
type Server struct {
	cfg      Config
	budgets  budgets
	epochs   epochs
	work     workload
	leaving  workload // connections that have ended and whose calls have not
	contents contents
	seed     maphash.Seed // of the hashes of params
	tasks    work.Tasks
	execs    *work.Execs
	relief   relief
	// sandboxes is the host, where it is one; else nil.
	sandboxes Sandboxes

	mu        sync.Mutex
	closed    bool
	draining  bool
	listeners map[net.Listener]struct{}
	conns     map[net.Conn]struct{}
	controls  map[*conn]struct{}
	watched   bool           // somebody looks after them
	quit      chan struct{}  // closed by Close
	all       sync.WaitGroup // every ServeConn
}

// New returns a server. The caller closes it.
func New(cfg Config) *Server {
	cfg.fill()
	s := &Server{
		cfg:       cfg,
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[net.Conn]struct{}),
		controls:  make(map[*conn]struct{}),
		quit:      make(chan struct{}),
	}
	s.sandboxes, _ = cfg.Host.(Sandboxes)
	s.budgets.most = cfg.Limits.MaxBufferedInflightBytes
	s.seed = maphash.MakeSeed()
	s.execs = work.NewExecs(work.ExecsConfig{})
	return s
}

// Serve accepts connections on ln until ctx ends, ln fails or the server is
// closed ([ErrServerClosed]), and closes ln. Running out of descriptors and
// the like it waits, from 5 ms to 250 ms, and goes on. It does not wait for
// the connections; Close does.
func (s *Server) Serve(ctx context.Context, ln net.Listener, planes Planes) error {
	defer ln.Close()
	if !s.track(func() { s.listeners[ln] = struct{}{}; s.watch() }) {
		return ErrServerClosed
	}
	defer s.untrack(func() { delete(s.listeners, ln) })
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	var wait time.Duration
	var logged time.Time
	for {
		nc, err := ln.Accept()
		if err == nil {
			wait = 0
			s.admit(ctx, nc, planes)
			continue
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.isClosed():
			return ErrServerClosed
		case errors.Is(err, net.ErrClosed):
			return err
		}
		wait = min(max(2*wait, 5*time.Millisecond), longestAcceptWait)
		if now := time.Now(); now.Sub(logged) > acceptLogEvery {
			s.cfg.Log("accept failed", "error", err, "retry_in", wait)
			logged = now
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// How long a listener waits at most when it cannot accept, and how often it
// says so.
const (
	longestAcceptWait = 250 * time.Millisecond
	acceptLogEvery    = 10 * time.Second
)

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ServeConn serves one connection, which it owns, until it ends, and waits
// for everything that the connection started. When ctx ends the connection is
// closed.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn, planes Planes) {
	s.visit(ctx, nc, planes, &guest{Visitor: Visitor{Addr: nc.RemoteAddr(), Source: gate.SourceOf(nc)}})
}

func (s *Server) visit(ctx context.Context, nc net.Conn, planes Planes, g *guest) {
	if !s.arrive(nc) {
		g.place.Leave()
		nc.Close()
		return
	}
	defer s.depart(nc, g, context.AfterFunc(ctx, func() { dataport.Bare(nc).Close() }))
	// This frame lies on the stack of every idle connection: what is needed to
	// let it in lies on another, which is gone by then.
	deadline := time.Now().Add(s.cfg.HelloTimeout)
	if c := s.letIn(ctx, nc, planes, g, deadline); c != nil {
		c.serve(ctx, deadline)
	}
}

// arrive counts a connection in, unless the server is closed.
func (s *Server) arrive(nc net.Conn) bool {
	return s.track(func() {
		s.conns[nc] = struct{}{}
		s.all.Add(1)
	})
}

func (s *Server) depart(nc net.Conn, g *guest, stop func() bool) {
	stop()
	s.untrack(func() { delete(s.conns, nc) })
	s.all.Done()
	g.place.Leave()
}

// letIn finds out what a connection is for. It serves one of the data plane
// itself; one of the control plane is returned to be served.
func (s *Server) letIn(ctx context.Context, nc net.Conn, planes Planes, g *guest, deadline time.Time) *conn {
	if !s.shakeHands(nc, g, deadline) {
		return nil
	}
	bare := dataport.Bare(nc)
	nc, plane := sniff(nc, planes, deadline)
	switch {
	case plane == Control:
		tune(bare)
		return newConn(s, nc, nil, g)
	case plane == Data && (planes == Data || s.cfg.Gate.Wait(gate.Token, g.Source) == 0):
		s.serveData(ctx, nc, nil, g)
	default:
		nc.Close()
	}
	return nil
}

// serveData hands a data connection to the pumps.
func (s *Server) serveData(ctx context.Context, nc net.Conn, session any, g *guest) {
	if s.cfg.ServeData != nil {
		g.place.Leave()
		s.cfg.ServeData(ctx, nc, session)
		return
	}
	dataport.Serve(ctx, nc, s.claims(session, g))
}

// Drain refuses hellos and new work from now on and waits until no call and
// no transfer runs and the verdicts were fetched. When ctx ends first, what
// is left is answered as unavailable and the error is ctx's. Listeners and
// connections stay open: Close ends them.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	for {
		err := s.work.wait(ctx)
		if err == nil {
			err = s.cfg.Transfers.Drain(ctx)
		}
		if err != nil {
			s.endAll(unavailable(sandbox.ReasonDraining, sandbox.OutcomeUnknown))
			return err
		}
		if s.work.idle() {
			return nil
		}
	}
}

// endAll answers every call in flight with err and ends the connections.
func (s *Server) endAll(err *sandbox.Error) {
	for _, c := range s.allControls() {
		c.end(err)
	}
}

func (s *Server) allControls() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.controls))
}

// Close closes all listeners and connections, cancels every call and waits
// until nothing is left. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
	for ln := range s.listeners {
		ln.Close()
	}
	for nc := range s.conns {
		dataport.Bare(nc).Close() // TLS might wait to say goodbye
	}
	s.mu.Unlock()
	s.tasks.Close(ErrServerClosed)
	s.all.Wait()
	s.epochs.wait()
	return nil
}

func (s *Server) track(add func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		add()
	}
	return !s.closed
}

func (s *Server) untrack(remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	remove()
}

// Left waits until what connections that have ended had begun has ended too,
// but for calls with a key, which outlive their connection.
func (s *Server) Left(ctx context.Context) error { return s.leaving.wait(ctx) }

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func unavailable(reason string, outcome sandbox.Outcome) *sandbox.Error {
	return &sandbox.Error{Kind: sandbox.KindUnavailable, Reason: reason, Outcome: outcome}
}

// workload counts the calls that run or wait to run.
type workload struct {
	mu    sync.Mutex
	n     int
	empty chan struct{} // closed when n falls to zero; nil when nobody waits
}

func (w *workload) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n += n; w.n == 0 && w.empty != nil {
		close(w.empty)
		w.empty = nil
	}
}

func (w *workload) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n == 0
}

func (w *workload) wait(ctx context.Context) error {
	w.mu.Lock()
	if w.n == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.empty == nil {
		w.empty = make(chan struct{})
	}
	empty := w.empty
	w.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
