package adapter

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// patience is how long a stream that broke waits for the server's word why.
const patience = 5 * time.Second

// verdict is the answer to a transfer_result that is outstanding while bytes
// flow.
type verdict struct {
	done   chan struct{}
	result rpc.VerdictResult
	err    error
	giveUp func() // waiting for it
}

// watch asks for the outcome of a transfer and calls then with it. Where that
// is an error, then may take its time: its goroutine belongs to the link.
func (l *link) watch(id string, then func(*verdict)) *verdict {
	v := &verdict{done: make(chan struct{})}
	v.giveUp = l.rpc.AskResult(id, func(r rpc.VerdictResult, err error) {
		v.result, v.err = r, err
		close(v.done)
		if err == nil || !l.spawn(func() { then(v) }) {
			then(v)
		}
	})
	return v
}

// within waits for the verdict, but no longer than d or ctx.
func (v *verdict) within(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-v.done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// source is a read transfer on its data connection.
type source struct {
	l            *link
	id           string
	conn         net.Conn
	reader       io.Reader
	size, length sandbox.Optional[int64]
	etag         string
	verdict      *verdict
	detach       func() bool
	ctx          context.Context
	quitOnce     sync.Once
}

// OpenRead implements [sandbox.Backend].
func (s *Sandbox) OpenRead(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.Source, error) {
	if opts.InlineMax.Known && !opts.Digest && opts.IfMatch == "" {
		return s.openInline(ctx, path, opts)
	}
	var l *link
	var a ahead
	send := keyed[rpc.StreamResult]
	if opts.RequestKey == "" { // a read that is minted twice does no harm, and a key costs time
		send = plain
	}
	r, err := send(ctx, s, rpc.MethodReadFileStream, path, opts.RequestKey, func(by *link, key string) (rpc.StreamResult, error) {
		l, opts.RequestKey = by, key
		r, err := l.rpc.ReadFileStreamAside(ctx, path, opts, func(ctx context.Context) { a = s.dialAhead(ctx, by) })
		if err != nil {
			a.close()
			a = ahead{}
		}
		return r, err
	})
	if err != nil {
		return nil, err
	}
	src, err := s.claimRead(ctx, l, &minted{&r.Transfer, r.Size, r.Length, r.ETag, opts}, a)
	if err != nil {
		return nil, at(err, rpc.MethodReadFileStream, path)
	}
	return src, nil
}

// openInline saves the transfer where the content is short.
func (s *Sandbox) openInline(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.Source, error) {
	l, err := s.link(ctx)
	if err != nil {
		return nil, at(err, rpc.MethodReadFile, path)
	}
	r, err := l.rpc.ReadFile(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	if r.Transfer == nil {
		return sandbox.ContentSource(r.File), nil
	}
	src, err := s.claimRead(ctx, l, mintedBuffer(r, opts), ahead{})
	if err != nil {
		return nil, at(err, rpc.MethodReadFile, path)
	}
	return src, nil
}

// minted is what the server said of a read that it minted.
type minted struct {
	transfer     *rpc.Transfer
	size, length sandbox.Optional[int64]
	etag         string
	opts         sandbox.ReadOptions
}

// mintedBuffer is a buffered read that turned into a transfer.
func mintedBuffer(r rpc.ReadResult, opts sandbox.ReadOptions) *minted {
	return &minted{r.Transfer, sandbox.Some(r.File.Size), sandbox.Some(r.Length), r.File.ETag, opts}
}

// claimRead opens a minted read: takes its file over, where that is to be had,
// or opens its data connection.
func (s *Sandbox) claimRead(ctx context.Context, l *link, r *minted, a ahead) (sandbox.Source, error) {
	if r.size.Known && r.length.Known && !r.opts.Digest && s.passes(l, r.transfer) {
		src, err := s.takeRead(ctx, l, r, a)
		if err != nil {
			l.drop(r.transfer.ID)
			return nil, err
		}
		if src != nil {
			return src, nil
		}
		a = ahead{} // it was used to ask
	}
	src, err := s.connectRead(ctx, l, r, a)
	if err != nil {
		return nil, err
	}
	return src, nil
}

// connectRead opens the data connection of a minted read. The verdict is asked
// for behind the token, so that it is on its way when the bytes are there;
// where no length is known it ends the bytes, and must not do that before OK.
func (s *Sandbox) connectRead(ctx context.Context, l *link, r *minted, a ahead) (*source, error) {
	src := &source{l: l, id: r.transfer.ID, size: r.size, length: r.length, etag: r.etag, ctx: ctx}
	var said func(net.Conn)
	if r.length.Known {
		said = src.begin
	}
	conn, err := s.open(ctx, l, r.transfer, a, said)
	if err != nil {
		l.drop(src.id)
		err = src.refused(err)
		if src.verdict != nil {
			src.verdict.giveUp()
		}
		return nil, err
	}
	if said == nil {
		src.begin(conn)
	}
	src.detach = context.AfterFunc(ctx, src.quit)
	return src, nil
}

// begin asks for the verdict of what comes on conn.
func (s *source) begin(conn net.Conn) {
	s.conn, s.reader = conn, conn
	var counted *countedReader
	if !s.length.Known {
		counted = &countedReader{conn: conn}
		s.reader = counted
	}
	s.verdict = s.l.watch(s.id, func(v *verdict) {
		if v.err != nil {
			conn.Close()
		} else if counted != nil {
			counted.end(v.result.Bytes)
		}
	})
}

// refused returns why there is no data connection of a transfer that has been
// dropped: where it broke without an answer, the verdict may know better.
func (s *source) refused(err error) error {
	if s.verdict == nil || sandbox.KindOf(err) != sandbox.KindConnectionLost || !s.verdict.within(context.Background(), patience) {
		return err
	}
	switch sandbox.KindOf(s.verdict.err) {
	case "", sandbox.KindAborted: // sent into the void, or what drop did
		return err
	}
	return s.verdict.err
}

// drop aborts a transfer that nobody will finish.
func (l *link) drop(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.rpc.TransferAbort(ctx, id)
}

// Size implements [sandbox.Source].
func (s *source) Size() (int64, bool) { return s.size.Value, s.size.Known }

// Length implements [sandbox.Source].
func (s *source) Length() (int64, bool) { return s.length.Value, s.length.Known }

// ETag implements [sandbox.Source].
func (s *source) ETag() string { return s.etag }

// Reader implements [sandbox.Source].
func (s *source) Reader() io.Reader { return s.reader }

// Finish implements [sandbox.Source]: the verdict is the server's, and the
// count must be ours as well.
func (s *source) Finish(sent int64) (sandbox.ReadVerdict, error) {
	whole := !s.length.Known || sent == s.length.Value
	if !whole {
		s.Close() // so that a server that waits for us learns of it
	}
	if !s.judged(sent) {
		return sandbox.ReadVerdict{}, s.unjudged(sent)
	}
	if s.ctx.Err() != nil && s.verdict.err != nil {
		return sandbox.ReadVerdict{}, sandbox.Cancelled(s.ctx, rpc.MethodReadFileStream, "")
	}
	if s.verdict.err != nil {
		return sandbox.ReadVerdict{}, s.verdict.err
	}
	if got := s.verdict.result; got.Bytes != sent {
		return sandbox.ReadVerdict{}, &sandbox.Error{Kind: sandbox.KindTruncated, Op: rpc.MethodReadFileStream,
			Bytes: sandbox.Some(sent), Expected: sandbox.Some(got.Bytes)}
	}
	s.Close()
	return s.verdict.result.Verdict, nil
}

// judgement is how long a verdict may take on bytes that are all there: it is on
// its way, or the connection that it comes on will be given up before.
const judgement = time.Minute

// judged waits for the verdict on so many bytes; false when none came in time.
func (s *source) judged(sent int64) bool {
	if s.length.Known && sent == s.length.Value && s.verdict.within(s.ctx, judgement) {
		return true
	}
	return s.verdict.within(context.Background(), patience)
}

func (s *source) unjudged(sent int64) error {
	if s.ctx.Err() != nil {
		return sandbox.Cancelled(s.ctx, rpc.MethodReadFileStream, "")
	}
	return &sandbox.Error{Kind: sandbox.KindOutcomeUnknown, Op: rpc.MethodReadFileStream, Outcome: sandbox.OutcomeUnknown,
		Message: "the server does not say whether the bytes are complete", Bytes: sandbox.Some(sent)}
}

// Close implements [sandbox.Source].
func (s *source) Close() error {
	s.detach()
	s.quit()
	return nil
}

// quit closes the connection. A transfer that has no verdict yet is aborted:
// not every transport tells the server that we are gone. Behind a verdict
// nobody waits for the close.
func (s *source) quit() {
	s.quitOnce.Do(func() {
		select {
		case <-s.verdict.done:
			if !s.l.spawn(func() { s.conn.Close() }) {
				s.conn.Close()
			}
		default:
			s.conn.Close()
			s.l.spawn(func() {
				s.l.drop(s.id)
				if !s.verdict.within(context.Background(), patience) {
					s.verdict.giveUp()
				}
			})
		}
	})
}
