package adapter

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// sink is a write transfer on its data connection.
type sink struct {
	s       *Sandbox
	l       *link
	id      string
	conn    net.Conn
	ctx     context.Context
	writer  io.Writer
	written *counter // nil where the writer is a bare descriptor
	detach  func() bool
	verdict *verdict

	mu    sync.Mutex
	ended bool // by Commit or Abort
}

// OpenWrite implements [sandbox.Backend].
func (s *Sandbox) OpenWrite(ctx context.Context, path string, opts sandbox.WriteOptions) (sandbox.Sink, error) {
	k, err := s.openWrite(ctx, path, opts)
	if err != nil {
		return nil, at(err, rpc.MethodWriteFileStream, path)
	}
	return k, nil
}

func (s *Sandbox) openWrite(ctx context.Context, path string, opts sandbox.WriteOptions) (*sink, error) {
	var l *link
	t, err := keyed(ctx, s, rpc.MethodWriteFileStream, path, opts.RequestKey, func(by *link, key string) (rpc.Transfer, error) {
		l, opts.RequestKey = by, key
		return l.rpc.WriteFileStream(ctx, path, opts)
	})
	if err != nil {
		return nil, err
	}
	conn, err := s.open(ctx, l, &t, ahead{}, nil)
	if err != nil {
		l.drop(t.ID)
		return nil, err
	}
	k := &sink{s: s, l: l, id: t.ID, conn: conn, writer: conn, ctx: ctx}
	if !bare(conn) {
		k.written = &counter{w: conn}
		k.writer = k.written
	}
	k.verdict = l.watch(t.ID, func(v *verdict) {
		if v.err != nil {
			conn.Close() // a writer that is blocked on it learns of it
		}
	})
	k.detach = context.AfterFunc(ctx, func() { k.abort(sandbox.Cancelled(ctx, rpc.MethodWriteFileStream, "")) })
	return k, nil
}

// bare tells whether conn is one that the kernel can send a file to by itself.
func bare(conn net.Conn) bool {
	_, ok := conn.(*net.TCPConn)
	return ok
}

// counter counts what is written to a connection.
type counter struct {
	w io.Writer
	n atomic.Int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// Writer implements [sandbox.Sink].
func (k *sink) Writer() io.Writer { return k.writer }

// Commit implements [sandbox.Sink].
func (k *sink) Commit(ctx context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	k.detach()
	if err := k.end(); err != nil {
		return sandbox.WriteInfo{}, err
	}
	defer k.conn.Close()
	if k.written != nil && k.written.n.Load() < c.Bytes {
		// Not every transport can tell the server that no more will come.
		k.l.drop(k.id)
		return sandbox.WriteInfo{}, &sandbox.Error{Kind: sandbox.KindTruncated, Op: rpc.MethodWriteFileStream,
			Bytes: sandbox.Some(k.written.n.Load()), Expected: sandbox.Some(c.Bytes)}
	}
	if k.s.control.Scheme != dataport.SchemeHybridVsock {
		dataport.CloseWrite(k.conn)
	}
	r, err := k.l.rpc.TransferCommit(ctx, k.id, c)
	if sandbox.KindOf(err) == sandbox.KindConnectionLost {
		r, err = k.ask(ctx, err)
	}
	if err != nil {
		return sandbox.WriteInfo{}, err
	}
	return sandbox.WriteInfo{Bytes: r.Bytes, ETag: r.ETag, Atomic: true}, nil
}

// end marks the sink as ended, once.
func (k *sink) end() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		if k.ctx.Err() != nil {
			return sandbox.Cancelled(k.ctx, rpc.MethodWriteFileStream, "")
		}
		return &sandbox.Error{Kind: sandbox.KindConflict, Op: "transfer_commit", Message: "the write has ended"}
	}
	k.ended = true
	return nil
}

// ask reconnects after the connection died under a commit and asks what
// became of it: the server keeps outcomes for a while.
func (k *sink) ask(ctx context.Context, lost error) (rpc.VerdictResult, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := k.s.link(ctx)
	if err != nil {
		return rpc.VerdictResult{}, lost
	}
	r, err := l.rpc.TransferResult(ctx, k.id)
	switch sandbox.KindOf(err) {
	case sandbox.KindNotFound, sandbox.KindConnectionLost, sandbox.KindCancelled, sandbox.KindOutcomeUnknown:
		return rpc.VerdictResult{}, lost
	}
	return r, err
}

// Abort implements [sandbox.Sink].
func (k *sink) Abort(cause error) error {
	k.detach()
	return k.abort(cause)
}

func (k *sink) abort(cause error) error {
	if k.end() != nil {
		return reason(cause)
	}
	defer k.conn.Close()
	if broken(cause) && k.verdict.within(context.Background(), patience) && k.verdict.err != nil {
		return k.verdict.err
	}
	k.conn.Close()
	k.l.drop(k.id)
	return reason(cause)
}

// reason returns an abort's cause as a typed error.
func reason(cause error) error {
	if cause == nil {
		return &sandbox.Error{Kind: sandbox.KindAborted, Op: rpc.MethodWriteFileStream, Outcome: sandbox.OutcomeNone}
	}
	return sandbox.AsError(rpc.MethodWriteFileStream, "", cause)
}

// broken tells whether err is that of the data connection, so that the server
// knows better what happened.
func broken(err error) bool {
	for _, target := range []error{syscall.EPIPE, syscall.ECONNRESET, net.ErrClosed, io.ErrClosedPipe} {
		if errors.Is(err, target) {
			return true
		}
	}
	var ne net.Error
	return errors.As(err, &ne)
}
