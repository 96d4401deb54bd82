// Package adapter is ControlServerSandbox: a [sandbox.Backend] behind a
// control and a data port. It dials lazily, shares one connection, reconnects
// with backoff, and never runs anything twice: a call that was in flight when
// its connection died is sent again where the server knows it by its key, else
// it fails, and says what is known of its outcome.
//
// What does not belong here: server code, logging, processes. The package is
// made to be linked into somebody else's program.
package adapter

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// Options tell a [Sandbox] where its server is. Only Control is required.
type Options struct {
	// Control is the URL of the control port, see [dataport.ParseEndpoint].
	Control string
	// Data lists URLs of the data port to try instead of those that the
	// server names.
	Data []string
	// Token authenticates.
	Token string
	// Sandbox names the sandbox ("default" where empty), Tenant the tenant
	// that the token must belong to (any where empty).
	Sandbox, Tenant string
	// Client names this program to the server, as name/version.
	Client string
	// Mux carries both planes over the one control connection.
	Mux bool
	// TLS configures tls endpoints, of both planes: roots, a certificate of
	// one's own, the server's name where it is not the host of Control. The
	// name that the control plane proves is asked of the data plane too.
	TLS *tls.Config
	// Dial replaces the dialling of endpoints.
	Dial func(context.Context, dataport.Endpoint) (net.Conn, error)
	// InlineMax is the size in bytes up to which the content of a buffered
	// call travels as JSON; above, it goes over the data port. Zero takes
	// the measured default.
	InlineMax int64
	// DialTimeout bounds one attempt to connect and say hello (10 s).
	DialTimeout time.Duration
	// NoKeys sends calls without request keys, unless they come with one: then
	// none is sent again.
	NoKeys bool
	// RetryFor is how long a call whose connection was lost waits for another
	// one to be sent again on (10 s).
	RetryFor time.Duration
	// PassFiles has streams take over the files themselves from a server on a
	// Unix socket that offers it, in place of their bytes. It is for whoever
	// shares the machine with the sandbox, such as the daemon in front of its
	// agent; what the sandbox hands over is looked at before it is used.
	PassFiles bool
	// TmpfsWrites are the tmpfs mounts on which files taken over may be
	// written, see [dataport.PassRules].
	TmpfsWrites []uint64
	// Conn tunes the control connection.
	Conn rpc.ConnOptions
}

// What Options have where they name nothing else; see the fields.
const (
	// InlineMax is where a transfer of its own begins to pay: below, its round
	// trips cost more than coding the bytes as JSON.
	InlineMax   = 128 << 10
	DialTimeout = 10 * time.Second
	RetryFor    = 10 * time.Second
)

func (o *Options) fill() {
	if o.InlineMax <= 0 {
		o.InlineMax = InlineMax
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = DialTimeout
	}
	if o.RetryFor <= 0 {
		o.RetryFor = RetryFor
	}
	if o.Client == "" {
		o.Client = "controld-go/1"
	}
}

// dialer is what dials where Options name none: a data endpoint must prove the
// name of the control plane, whatever host it is told to be on.
func (o *Options) dialer(control dataport.Endpoint) func(context.Context, dataport.Endpoint) (net.Conn, error) {
	if control.Encrypted() && (o.TLS == nil || o.TLS.ServerName == "") {
		named := o.TLS.Clone()
		if named == nil {
			named = &tls.Config{}
		}
		named.ServerName = control.Host
		return dataport.Dialer{TLS: named}.Dial
	}
	return dataport.Dialer{TLS: o.TLS}.Dial
}

// Sandbox is a sandbox behind a control server. Make it with [New], end it
// with Close.
type Sandbox struct {
	opts    Options
	control dataport.Endpoint
	data    []dataport.Endpoint

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu       sync.Mutex
	closed   bool
	current  *link
	dialling *attempt
	failures int // dials in a row
	leases   map[*lease]struct{}
	all      sync.WaitGroup
}

var _ sandbox.Backend = (*Sandbox)(nil)

// New returns a sandbox that dials at its first call. An error means that
// Options cannot be used; nothing has been dialled yet.
func New(opts Options) (*Sandbox, error) {
	opts.fill()
	control, err := dataport.ParseEndpoint(opts.Control)
	if err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: "connect", Message: err.Error(), Err: err}
	}
	if opts.Dial == nil {
		opts.Dial = opts.dialer(control)
	}
	s := &Sandbox{opts: opts, control: control, leases: make(map[*lease]struct{})}
	for _, u := range opts.Data {
		e, err := dataport.ParseEndpoint(u)
		if err != nil {
			return nil, &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: "connect", Message: err.Error(), Err: err}
		}
		s.data = append(s.data, e)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the connection and every call and stream on it, and waits until
// nothing is left. It may be called twice.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	s.closed = true
	current, leases := s.current, slices.Collect(maps.Keys(s.leases))
	s.mu.Unlock()
	s.cancel()
	for _, e := range leases {
		e.end()
	}
	if current != nil {
		current.close()
	}
	s.all.Wait()
	return nil
}

// Heard is when the server said anything at all over the control connection, zero
// where there is none.
func (s *Sandbox) Heard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return time.Time{}
	}
	return s.current.rpc.Heard()
}

// Ping asks the server for a sign of life, connecting where need be.
func (s *Sandbox) Ping(ctx context.Context) error {
	l, err := s.link(ctx)
	if err != nil {
		return err
	}
	return l.rpc.Ping(ctx)
}

// Server returns the server's name and version as it said hello.
func (s *Sandbox) Server(ctx context.Context) (string, error) {
	l, err := s.link(ctx)
	if err != nil {
		return "", err
	}
	return l.hello.Server, nil
}
