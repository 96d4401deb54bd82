package server

import (
	"context"
	"crypto/x509"
	"net"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server/gate"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
	"github.com/controld/controld/work"
)

// Host knows tokens and sandboxes. It may implement [Sandboxes].
type Host interface {
	// Open authenticates a hello, in constant time, and opens its sandbox,
	// making it first where needed. A wrong token, a tenant that does not
	// match it and a sandbox that it does not cover are of kind
	// unauthenticated and close the connection; after any other error the
	// client may try again. ctx ends with the time a hello has.
	Open(ctx context.Context, hello rpc.HelloParams, from Visitor) (*Session, error)
}

// Visitor is who is at the far end of a connection.
type Visitor struct {
	Addr net.Addr
	// Source is whom the connection is counted to.
	Source gate.Source
	// Certificate is the client's, verified by TLS; nil without one.
	Certificate *x509.Certificate
}

// Session is what a token opened: one sandbox of one tenant.
type Session struct {
	Tenant, Sandbox string
	// WholeTenant says that the token covers every sandbox of the tenant, not
	// this one alone.
	WholeTenant bool
	// Who names the token or certificate, without telling it.
	Who     string
	Backend sandbox.Backend
	// Info is what hello tells of the sandbox.
	Info sandbox.Info
	// Epoch names this life of the sandbox.
	Epoch string
	// Closed, where not nil, is closed when the epoch ends: calls in flight
	// are answered and the connection closes. Sessions of one sandbox should
	// share the channel.
	Closed <-chan struct{}
	// Life names the life of the sandbox where that outlives the server's: it
	// may go on under another Epoch. Empty where it ends with the server.
	Life string
	// Reason, where not nil, tells why the epoch ended, once Closed is closed.
	Reason func() string
	// Release, where not nil, is called once when the connection is gone.
	// Calls with a key may use the Backend still.
	Release func()
}

// Planes says what a connection may carry.
type Planes uint8

// The planes; a listener may take both.
const (
	Control Planes = 1 << iota
	Data
)

// Config is what a [Server] is made of. Host is required; zero fields take
// the protocol's defaults.
type Config struct {
	Host Host
	// Transfers holds what is minted. The server does not close it.
	Transfers *transfer.Table
	// Keys knows calls by their request keys; with none the capability keys is
	// not offered. The server does not close it.
	Keys *work.Keys
	// Limits bound each connection and tenant, and are told in hello.
	Limits sandbox.Limits
	// ServerName is told in hello: "controld/VERSION".
	ServerName string
	// DataURLs lists the data endpoints for a client that reached this local
	// address on the control plane.
	DataURLs func(local net.Addr) []string
	// Capabilities are told in hello beside those of the sandbox.
	Capabilities []string
	// Gate decides on connections that have not authenticated; one without
	// bounds where nil.
	Gate *gate.Gate
	// CertificateLogin lets a client certificate stand for a token: hello may
	// come without one, and Host decides.
	CertificateLogin bool
	// CertificateTenant names the tenant of a client certificate; it is
	// required where the listeners ask for certificates.
	CertificateTenant func(*x509.Certificate) (string, error)
	// Pump moves the bytes of transfers; one without a bound on its pipes
	// where nil.
	Pump *dataport.Pump
	// PassFiles, where not nil, has files handed over on Unix sockets in place
	// of their bytes, to whoever asks for it: those that the rules allow.
	PassFiles *dataport.PassRules
	// ServeData, where not nil, takes the data connections instead of the
	// pump. Their first byte, not yet read, is that of a preamble. session is
	// nil on the data port, else what the tokens of this multiplexed session
	// are bound to. A read deadline of HelloTimeout after the accept is in
	// force.
	ServeData func(ctx context.Context, conn net.Conn, session any)
	// Audit, which may be nil, is told of every hello that was judged and of
	// every call that ran. It must not wait.
	Audit func(Deed)
	// Log, which may be nil, takes events: a message and pairs of key and
	// value. No value is a secret.
	Log func(message string, pairs ...any)
	// HelloTimeout bounds the time from accept to a successful hello (5 s).
	HelloTimeout time.Duration
	// OpenTimeout is how long Host.Open may take, where that is to be longer
	// than what is left of HelloTimeout.
	OpenTimeout time.Duration
	// LingerTime is how long a connection is drained behind a last answer
	// (1 s).
	LingerTime time.Duration
	// UnreadReplies is how many bytes of replies may wait for the peer before
	// the server stops reading its requests (4 MiB).
	UnreadReplies int64
	// MaxStreams bounds the open streams of a multiplexed session (1,024).
	MaxStreams int
}

// What a Config has where it names nothing else; see its fields.
const (
	HelloTimeout  = 5 * time.Second
	UnreadReplies = 4 << 20
	MaxStreams    = 1024
)

func (c *Config) fill() {
	d := sandbox.DefaultLimits()
	l := &c.Limits
	fill(&l.MaxMessageBytes, d.MaxMessageBytes)
	fill(&l.MaxInflight, d.MaxInflight)
	fill(&l.MaxQueued, d.MaxQueued)
	fill(&l.MaxWaitingTransfers, d.MaxWaitingTransfers)
	fill(&l.MaxBatch, d.MaxBatch)
	l.MaxDepth = rpc.MaxDepth
	fill(&l.MaxBufferedBytes, d.MaxBufferedBytes)
	fill(&l.MaxOutputBytes, d.MaxOutputBytes)
	fill(&l.MaxBufferedInflightBytes, d.MaxBufferedInflightBytes)
	fill(&l.WriteTimeout, d.WriteTimeout)
	fill(&l.TokenTTL, d.TokenTTL)
	fill(&l.StallTimeout, d.StallTimeout)
	fill(&l.KeptOutcomes, d.KeptOutcomes)
	fill(&l.ReconnectGrace, d.ReconnectGrace)
	fill(&c.HelloTimeout, HelloTimeout)
	fill(&c.LingerTime, dataport.LingerTime)
	fill(&c.UnreadReplies, UnreadReplies)
	fill(&c.MaxStreams, MaxStreams)
	if c.ServerName == "" {
		c.ServerName = "controld"
	}
	if c.Transfers == nil {
		c.Transfers = transfer.NewTable(transfer.Config{TokenTTL: l.TokenTTL, Kept: l.KeptOutcomes})
	}
	if c.Pump == nil {
		c.Pump = dataport.NewPump(dataport.PumpOptions{Stall: l.StallTimeout})
	}
	if c.Gate == nil {
		c.Gate = gate.New(gate.Limits{})
	}
	if c.DataURLs == nil {
		c.DataURLs = func(net.Addr) []string { return nil }
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
}

func fill[T int | int64 | time.Duration](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}
