package adapter

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// mostLeases is how many files of one sandbox may be held at once: what it can
// cost in descriptors, and in threads that wait for a file system of its own.
const mostLeases = 64

// lease is a place for one file that was handed over.
type lease struct {
	s *Sandbox

	mu   sync.Mutex
	file *dataport.Passed // nil before it has come
	over bool
}

// newLease returns a place; nil where all are taken, or the sandbox is closed.
func (s *Sandbox) newLease() *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.leases) >= mostLeases {
		return nil
	}
	e := &lease{s: s}
	s.leases[e] = struct{}{}
	return e
}

// end closes the file. The place is free again once that is done, or when a
// file that is waited for has come. It may be called twice.
func (e *lease) end() {
	e.mu.Lock()
	file := e.file
	e.over = true
	e.mu.Unlock()
	if file != nil {
		file.Close()
		e.leave()
	}
}

// leave gives the place back.
func (e *lease) leave() {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	delete(e.s.leases, e)
}

// hold takes the file that has come, or closes one that is not wanted any more.
func (e *lease) hold(file *dataport.Passed) {
	e.mu.Lock()
	over := e.over
	if !over {
		e.file = file
	}
	e.mu.Unlock()
	if over {
		file.Close()
		e.leave()
	}
}

// passes tells whether the server may be asked for the file of a transfer. Its
// capability says so once and for all; what it refuses then, it refuses of one
// file.
func (s *Sandbox) passes(l *link, t *rpc.Transfer) bool {
	if !s.opts.PassFiles || l.mux != nil || !slices.Contains(l.hello.Info.Capabilities, sandbox.CapPassFiles) {
		return false
	}
	endpoints := s.dataEndpoints(l, t.Endpoints)
	return len(endpoints) > 0 && endpoints[0].Scheme == dataport.SchemeUnix
}

// takeFile asks for the file of a minted transfer. nil without an error is to
// say: ask for its bytes. The file's file system may be of the sandbox's own
// making, and keep whoever asks it anything; so that is waited for apart.
func (s *Sandbox) takeFile(ctx context.Context, l *link, t *rpc.Transfer, a ahead, write bool) (*lease, *dataport.Passed, error) {
	e := s.newLease()
	if e == nil {
		a.close()
		return nil, nil, nil
	}
	type answer struct {
		file *dataport.Passed
		err  error
	}
	came := make(chan answer, 1)
	go func() {
		file, err := dataport.OpenFile(ctx, t.Token, s.dials(l, t, a)[0], dataport.PassRules{TmpfsWrites: s.opts.TmpfsWrites}, write)
		if err == nil {
			e.hold(file)
		} else {
			e.leave()
		}
		came <- answer{file, err}
	}()
	select {
	case got := <-came:
		if sandbox.KindOf(got.err) == sandbox.KindUnsupported {
			return nil, nil, nil
		}
		return e, got.file, got.err
	case <-ctx.Done():
		e.end()
		return nil, nil, sandbox.Cancelled(ctx, "open data connection", "")
	}
}

// passedSource is a read whose file was handed over: whoever reads it is the
// judge of it.
type passedSource struct {
	*lease
	file         *dataport.Passed
	size, length int64
	etag         string
	opts         sandbox.ReadOptions
	offset       int64
	base         sandbox.FileVersion // as it came
	ctx          context.Context
	detach       func() bool
}

// takeRead asks for the file of a minted read; nil without an error is as in
// takeFile.
func (s *Sandbox) takeRead(ctx context.Context, l *link, r *minted, a ahead) (*passedSource, error) {
	e, file, err := s.takeFile(ctx, l, r.transfer, a, false)
	if e == nil || err != nil {
		return nil, err
	}
	src := &passedSource{lease: e, file: file, size: r.size.Value, length: r.length.Value, etag: r.etag, opts: r.opts, ctx: ctx}
	if src.base, err = file.Version(); err != nil {
		e.end()
		return nil, sandbox.AsError(rpc.MethodReadFileStream, "", err)
	}
	src.offset = min(r.opts.Offset, src.size)
	file.SetOffset(src.offset)
	src.detach = context.AfterFunc(ctx, e.end)
	return src, nil
}

// Size implements [sandbox.Source].
func (p *passedSource) Size() (int64, bool) { return p.size, true }

// Length implements [sandbox.Source].
func (p *passedSource) Length() (int64, bool) { return p.length, true }

// ETag implements [sandbox.Source].
func (p *passedSource) ETag() string { return p.etag }

// Reader implements [sandbox.Source].
func (p *passedSource) Reader() io.Reader { return p.file }

// Finish implements [sandbox.Source]. The version that was minted, the one that
// came and the one that is there now must be the same.
func (p *passedSource) Finish(sent int64) (sandbox.ReadVerdict, error) {
	if p.ctx.Err() != nil {
		return sandbox.ReadVerdict{}, sandbox.Cancelled(p.ctx, rpc.MethodReadFileStream, "")
	}
	now, err := p.file.Version()
	if err != nil {
		return sandbox.ReadVerdict{}, sandbox.AsError(rpc.MethodReadFileStream, "", err)
	}
	changed := p.base.ETag() != p.etag || !now.SameContent(p.base)
	if now.Size < p.offset+p.length || changed && (p.opts.IfMatch != "" || sent < p.length) {
		return sandbox.ReadVerdict{}, &sandbox.Error{Kind: sandbox.KindChanged, Op: rpc.MethodReadFileStream,
			Message: "the file changed while it was read", Bytes: sandbox.Some(sent)}
	}
	return sandbox.ReadVerdict{Changed: changed}, nil
}

// Close implements [sandbox.Source].
func (p *passedSource) Close() error {
	p.detach()
	p.end()
	return nil
}
