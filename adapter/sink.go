package adapter

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// sink is a write transfer, on its data connection or with its file.
type sink struct {
	s       *Sandbox
	l       *link
	id      string
	ctx     context.Context
	writer  io.Writer
	written *counter // nil where the writer is a bare descriptor
	last    func()   // says that no more bytes will come, before the commit
	close   func()   // ends the connection; may be called twice
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
	k := &sink{s: s, l: l, id: t.ID, ctx: ctx}
	if err := k.open(&t, opts); err != nil {
		l.drop(t.ID)
		return nil, err
	}
	k.verdict = l.watch(t.ID, func(v *verdict) {
		if v.err != nil {
			k.close() // a writer that is blocked on it learns of it
		}
	})
	k.detach = context.AfterFunc(ctx, func() { k.abort(sandbox.Cancelled(ctx, rpc.MethodWriteFileStream, "")) })
	return k, nil
}

// open takes the transfer's file over, where that is to be had, or opens its
// data connection.
func (k *sink) open(t *rpc.Transfer, opts sandbox.WriteOptions) error {
	if !opts.Digest && k.s.passes(k.l, t) {
		e, file, err := k.s.takeFile(k.ctx, k.l, t, ahead{}, true)
		if err != nil {
			return err
		}
		if e != nil {
			k.writer, k.last, k.close = file, func() { file.CloseFile() }, e.end
			return nil
		}
	}
	conn, err := k.s.open(k.ctx, k.l, t, ahead{}, nil)
	if err != nil {
		return err
	}
	k.writer, k.last, k.close = conn, func() {}, func() { conn.Close() }
	if k.s.control.Scheme != dataport.SchemeHybridVsock {
		k.last = func() { dataport.CloseWrite(conn) }
	}
	if !bare(conn) {
		k.written = &counter{w: conn}
		k.writer = k.written
	}
	return nil
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
	defer k.close()
	defer k.verdict.giveUp()
	if k.written != nil && k.written.n.Load() < c.Bytes {
		// Not every transport can tell the server that no more will come.
		k.l.drop(k.id)
		return sandbox.WriteInfo{}, &sandbox.Error{Kind: sandbox.KindTruncated, Op: rpc.MethodWriteFileStream,
			Bytes: sandbox.Some(k.written.n.Load()), Expected: sandbox.Some(c.Bytes)}
	}
	k.last()
	r, err := k.l.rpc.TransferCommit(ctx, k.id, c)
	if sandbox.KindOf(err) == sandbox.KindConnectionLost {
		r, err = k.ask(ctx, c, err)
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
func (k *sink) ask(ctx context.Context, c sandbox.Commit, lost error) (rpc.VerdictResult, error) {
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
	if err == nil && r.Bytes != c.Bytes {
		err = &sandbox.Error{Kind: sandbox.KindInternal, Op: rpc.MethodWriteFileStream, Outcome: sandbox.OutcomeUnknown,
			Message: "bad answer: it committed another number of bytes than it was told"}
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
	defer k.close()
	if broken(cause) && k.verdict.within(context.Background(), patience) && k.verdict.err != nil {
		return k.verdict.err
	}
	k.close()
	k.l.drop(k.id)
	k.verdict.giveUp()
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
	for _, target := range []error{syscall.EPIPE, syscall.ECONNRESET, net.ErrClosed, os.ErrClosed, io.ErrClosedPipe} {
		if errors.Is(err, target) {
			return true
		}
	}
	var ne net.Error
	return errors.As(err, &ne)
}
