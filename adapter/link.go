package adapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// The pause before another dial doubles from the first to the longest.
const (
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = 5 * time.Second
)

// muxWriteTimeout bounds a write of the multiplexer that makes no progress.
const muxWriteTimeout = 30 * time.Second

// link is one control connection after its hello.
type link struct {
	rpc   *rpc.Conn
	hello rpc.HelloResult
	mux   *yamux.Session // nil without

	// streams are the goroutines that wait for verdicts on this link.
	mu      sync.Mutex
	closed  bool
	streams sync.WaitGroup
}

// spawn runs f in a goroutine that close waits for; false after close.
func (l *link) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.streams.Go(f)
	return true
}

func (l *link) alive() bool {
	select {
	case <-l.rpc.Done():
		return false
	default:
		return l.rpc.Err() == nil
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.rpc.Close()
	if l.mux != nil {
		l.mux.Close()
	}
	l.streams.Wait()
}

// attempt is a dial that several callers wait for.
type attempt struct {
	done chan struct{}
	link *link
	err  error
}

// link returns the living link and dials where there is none. Callers that
// come at once share the dial; one that gives up ends its own waiting alone.
func (s *Sandbox) link(ctx context.Context) (*link, error) {
	if ctx.Err() != nil {
		return nil, cancelled(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "connect", Reason: "closed", Outcome: sandbox.OutcomeNone}
	}
	if s.current != nil && s.current.alive() {
		l := s.current
		s.mu.Unlock()
		return l, nil
	}
	try := s.dialling
	if try == nil {
		try = &attempt{done: make(chan struct{})}
		s.dialling = try
		s.all.Add(1)
		go s.attempt(try)
	}
	s.mu.Unlock()
	select {
	case <-try.done:
		return try.link, try.err
	case <-ctx.Done():
		return nil, cancelled(ctx)
	}
}

func cancelled(ctx context.Context) error {
	e := sandbox.Cancelled(ctx, "connect", "")
	e.Outcome = sandbox.OutcomeNone
	return e
}

// attempt dials once, after the pause that earlier failures earned.
func (s *Sandbox) attempt(try *attempt) {
	defer s.all.Done()
	defer close(try.done)
	s.mu.Lock()
	old := s.current
	s.current = nil
	pause := backoff(s.failures)
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	try.link, try.err = s.dial(pause)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialling = nil
	if try.err != nil {
		s.failures++
		return
	}
	s.failures = 0
	s.current = try.link
	if s.closed {
		s.current.close()
	}
}

func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	d := longestBackoff
	if failures < 8 {
		d = min(d, firstBackoff<<(failures-1))
	}
	return d/2 + rand.N(d/2)
}

func (s *Sandbox) dial(pause time.Duration) (*link, error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		return nil, cancelled(s.ctx)
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.DialTimeout)
	defer cancel()
	conn, err := s.opts.Dial(ctx, s.control)
	if err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "connect", Outcome: sandbox.OutcomeNone,
			Reason: "unreachable", Message: "cannot reach the server: " + err.Error(), Err: err}
	}
	if s.opts.Mux {
		return s.introduceMux(ctx, conn)
	}
	return s.introduce(ctx, conn)
}

func (s *Sandbox) helloParams() rpc.HelloParams {
	return rpc.HelloParams{Protocol: rpc.ProtocolVersion, Token: s.opts.Token, Client: s.opts.Client,
		Sandbox: s.opts.Sandbox, Tenant: s.opts.Tenant}
}

func (s *Sandbox) introduce(ctx context.Context, conn net.Conn) (*link, error) {
	l := &link{rpc: rpc.NewConn(conn, s.opts.Conn)}
	var err error
	if l.hello, err = l.rpc.Hello(ctx, s.helloParams()); err != nil {
		l.rpc.Close()
		return nil, notYet(err)
	}
	return l, nil
}

// introduceMux says hello on the bare connection and then opens the control
// stream of a multiplexed session on it.
func (s *Sandbox) introduceMux(ctx context.Context, conn net.Conn) (*link, error) {
	params := s.helloParams()
	params.Mux = rpc.MuxYamux
	hello, err := rpc.Introduce(ctx, conn, params)
	if err != nil {
		conn.Close()
		return nil, notYet(err)
	}
	session, err := dataport.MuxClient(conn, muxWriteTimeout)
	if err != nil {
		conn.Close()
		return nil, notYet(err)
	}
	stream, err := session.OpenStream()
	if err != nil {
		session.Close()
		return nil, notYet(err)
	}
	opts := s.opts.Conn
	if opts.MaxMessageBytes == 0 {
		opts.MaxMessageBytes = hello.Info.Limits.MaxMessageBytes
	}
	if opts.MostMessageBytes > 0 {
		opts.MaxMessageBytes = min(opts.MaxMessageBytes, opts.MostMessageBytes)
	}
	return &link{rpc: rpc.NewConn(&sessionConn{stream, session}, opts), hello: hello, mux: session}, nil
}

// notYet says of an error before the first call that nothing has happened.
func notYet(err error) error {
	e := *sandbox.AsError("connect", "", err)
	e.Outcome = sandbox.OutcomeNone
	if refused := refusedCertificate(err); refused != nil {
		e.Kind, e.Reason = sandbox.KindUnauthenticated, "certificate"
		e.Message = "the server does not accept the client's certificate: " + refused.Error()
	}
	if e.Kind == sandbox.KindCancelled || e.Kind == sandbox.KindOutcomeUnknown {
		e.Kind, e.Reason = sandbox.KindUnavailable, "unreachable"
		e.Message = "the server did not answer hello in time"
	}
	return &e
}

// refusedCertificate returns what a TLS server said that did not accept the
// client's certificate, or wanted one; nil where it is something else. With TLS
// 1.3 a client hears of it behind the handshake, in place of the first answer.
func refusedCertificate(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return nil
	}
	// The type of alerts is crypto/tls's own.
	if said := op.Err.Error(); !strings.Contains(said, "certificate") && !strings.Contains(said, "access denied") {
		return nil
	}
	return op.Err
}

// sessionConn is the control stream of a session. Closing a stream of yamux
// would only end its sending side; with the control stream the session ends.
type sessionConn struct {
	*yamux.Stream
	session *yamux.Session
}

func (c *sessionConn) Close() error { return c.session.Close() }

// dataEndpoints returns where to dial: our own choice first of all, else what
// the server named, with the host that was dialled for control where it named
// none. Behind a control plane with TLS nothing goes in the clear, unless the
// server says that it was set up so.
func (s *Sandbox) dataEndpoints(l *link, urls []string) []dataport.Endpoint {
	if len(s.data) > 0 {
		return s.data
	}
	plain := !s.control.Encrypted() || slices.Contains(l.hello.Info.Capabilities, sandbox.CapPlainData)
	var out []dataport.Endpoint
	for _, u := range urls {
		e, err := dataport.ParseEndpoint(u)
		if err != nil || e.Scheme == dataport.SchemeMux || e.Scheme == dataport.SchemeTCP && !plain {
			continue
		}
		if e.Host == "" && (e.Scheme == dataport.SchemeTCP || e.Scheme == dataport.SchemeTLS) {
			if e.Host = s.control.Host; e.Host == "" {
				e.Host = "127.0.0.1"
			}
		}
		out = append(out, e)
	}
	return out
}
