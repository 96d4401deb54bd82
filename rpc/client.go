package rpc

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/controld/controld/sandbox"
)

// ConnOptions tune a [Conn]. Zero fields take the protocol's defaults.
type ConnOptions struct {
	// MaxMessageBytes bounds lines in both directions (32 MiB) until a hello
	// names the server's own limit.
	MaxMessageBytes int64
	// MostMessageBytes, where not zero, is the highest limit of a server that
	// is believed: it is what an answer can cost in memory.
	MostMessageBytes int64
	// WriteTimeout drops a server that accepts no byte for so long (30 s).
	WriteTimeout time.Duration
	// PingInterval is how long the connection may be silent before a ping
	// (20 s), PingTimeout how long the ping may go unanswered (20 s).
	PingInterval, PingTimeout time.Duration
	// CancelTimeout is how long a cancelled call waits for the server's word
	// (5 s).
	CancelTimeout time.Duration
}

// The times of a connection where its options name none: when a silent server
// is asked, when one that does not answer is given up, and how long a cancelled
// call waits.
const (
	DefaultPingInterval  = 20 * time.Second
	DefaultPingTimeout   = 20 * time.Second
	DefaultCancelTimeout = 5 * time.Second
)

func (o *ConnOptions) fill() {
	d := sandbox.DefaultLimits()
	fill(&o.MaxMessageBytes, d.MaxMessageBytes)
	fill(&o.WriteTimeout, d.WriteTimeout)
	fill(&o.PingInterval, DefaultPingInterval)
	fill(&o.PingTimeout, DefaultPingTimeout)
	fill(&o.CancelTimeout, DefaultCancelTimeout)
}

func fill[T int64 | time.Duration](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// Conn is the client's half of a control connection. Its methods may be used
// by many goroutines at once. It never reconnects and never sends twice.
type Conn struct {
	conn io.ReadWriteCloser
	w    *Writer
	opts ConnOptions
	most atomic.Int64 // bytes a message, either way

	lastRead atomic.Int64 // in Unix nanoseconds
	ping     pinger

	mu      sync.Mutex
	pending map[uint64]*call
	lastID  uint64
	err     error // why the connection ended

	done chan struct{} // closed when nothing of the connection is left
}

var _ jsonrpc2.JSONRPC2 = (*Conn)(nil)

// call is one request in flight.
type call struct {
	result Result
	msg    *Message
	err    error
	done   chan struct{} // receives one value
	failed func()        // where not nil, called before, where err is set
	then   func()        // where not nil, called instead
}

// finish tells whoever waits that the call has its answer.
func (cl *call) finish() {
	if cl.err != nil && cl.failed != nil {
		cl.failed()
	}
	if cl.then != nil {
		cl.then()
		return
	}
	cl.done <- struct{}{}
}

// NewConn speaks on conn, which it owns from now on: a net.Conn or anything
// like it whose Close ends a blocked Read. The caller closes the Conn.
func NewConn(conn io.ReadWriteCloser, opts ConnOptions) *Conn {
	opts.fill()
	c := &Conn{
		conn:    conn,
		opts:    opts,
		pending: make(map[uint64]*call),
		done:    make(chan struct{}),
	}
	c.most.Store(opts.MaxMessageBytes)
	c.lastRead.Store(time.Now().UnixNano())
	c.w = NewWriter(deadliner(conn), opts.WriteTimeout, func(err error) { c.shut(err) })
	c.ping.start(c)
	go c.read()
	return c
}

// Heard is when the server said anything at all, or the connection was made.
func (c *Conn) Heard() time.Time { return time.Unix(0, c.lastRead.Load()) }

// deadliner returns conn as a writer with deadlines, which do nothing where
// it has none.
func deadliner(conn io.Writer) writeConn {
	if wc, ok := conn.(writeConn); ok {
		return wc
	}
	return noDeadline{conn}
}

type noDeadline struct{ io.Writer }

func (noDeadline) SetWriteDeadline(time.Time) error { return nil }

// Call implements jsonrpc2.JSONRPC2. Params and result may be types of this
// package, which are coded in one pass, or anything that encoding/json takes;
// a nil result is dropped. Options are ignored. Errors are of type
// *sandbox.Error. When ctx ends the server is told, and the call waits for
// its word for CancelTimeout; then the error is of kind outcome_unknown.
func (c *Conn) Call(ctx context.Context, method string, params, result any, _ ...jsonrpc2.CallOption) error {
	p, err := paramsOf(method, params)
	if err != nil {
		return err
	}
	switch r := result.(type) {
	case nil:
		return c.do(ctx, method, "", p, dropped{})
	case Result:
		return c.do(ctx, method, "", p, r)
	}
	var raw rawResult
	if err := c.do(ctx, method, "", p, &raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw.text, result); err != nil {
		return sandbox.AsError(method, "", err)
	}
	return nil
}

// Notify implements jsonrpc2.JSONRPC2. The server acts on $/cancelRequest
// alone.
func (c *Conn) Notify(ctx context.Context, method string, params any, _ ...jsonrpc2.CallOption) error {
	p, err := paramsOf(method, params)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return sandbox.Cancelled(ctx, method, "")
	}
	if err := c.w.Send(newCall(nil, method, p)); err != nil {
		return c.lost(method, "", true)
	}
	return nil
}

func paramsOf(method string, params any) (Params, error) {
	switch p := params.(type) {
	case nil:
		return nil, nil
	case Params:
		return p, nil
	}
	text, err := json.Marshal(params)
	if err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: method, Message: err.Error(), Err: err}
	}
	return &rawParams{text}, nil
}

// dropped takes a result that nobody wants.
type dropped struct{}

func (dropped) decode(d *decoder) { d.skip() }
func (dropped) encode(encoder)    {}

// do sends one request and waits for its answer.
func (c *Conn) do(ctx context.Context, method, path string, p Params, r Result) error {
	cl := &call{result: r, done: make(chan struct{}, 1)}
	id, err := c.submit(ctx, cl, method, path, p)
	if err != nil {
		return err
	}
	return c.await(ctx, id, cl, method, path)
}

// await waits for the answer to a call that was submitted.
func (c *Conn) await(ctx context.Context, id uint64, cl *call, method, path string) error {
	defer cl.msg.release()
	select {
	case <-cl.done:
	case <-ctx.Done():
		if err := c.abandon(ctx, id, cl, method, path); err != nil {
			return err
		}
	}
	return c.verdict(ctx, cl, method, path)
}

// start sends one request and does not wait: then gets the answer, once. It
// runs on the goroutine that reads the connection, which it must not hold up,
// or on the caller's where the connection has ended.
//
// What it returns gives up waiting: where no answer has come, then is told that
// none did.
func (c *Conn) start(method, path string, p Params, r Result, then func(error)) (giveUp func()) {
	cl := &call{result: r}
	cl.then = func() {
		cl.msg.release()
		then(c.verdict(context.Background(), cl, method, path))
	}
	id, err := c.submit(context.Background(), cl, method, path, p)
	if err != nil {
		then(err)
	}
	return func() {
		if err == nil && c.forget(id) {
			cl.err = &sandbox.Error{Kind: sandbox.KindOutcomeUnknown, Outcome: sandbox.OutcomeUnknown, Message: "no word from the server"}
			cl.finish()
		}
	}
}

// submit registers a call and sends it, unless ctx has ended.
func (c *Conn) submit(ctx context.Context, cl *call, method, path string, p Params) (uint64, error) {
	if ctx.Err() != nil {
		return 0, withOutcome(sandbox.Cancelled(ctx, method, path), sandbox.OutcomeNone)
	}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return 0, c.lost(method, path, true)
	}
	c.lastID++
	id := c.lastID
	c.mu.Unlock()

	var digits [20]byte
	msg := newCall(strconv.AppendUint(digits[:0], id, 10), method, p)
	if most := c.most.Load(); msg.Size() > most {
		msg.release()
		return 0, &sandbox.Error{Kind: sandbox.KindTooLarge, Op: method, Path: path, Limit: sandbox.Some(most)}
	}
	msg.others.Store(1)
	cl.msg = msg
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return 0, c.lost(method, path, true)
	}
	c.pending[id] = cl
	c.mu.Unlock()
	c.w.Send(msg) // an error ends the connection, and the call with it
	return id, nil
}

// Close ends the connection and every call in flight, and waits until
// nothing is left of it. It may be called twice.
func (c *Conn) Close() error {
	c.shut(jsonrpc2.ErrClosed)
	<-c.done
	return nil
}

// Done is closed when the connection has ended and every call was told.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection ended, nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
