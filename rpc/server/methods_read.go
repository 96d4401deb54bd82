package server

import (
	"context"
	"errors"
	"io"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// inlineHint is what a backend that is far away may send along with an open
// when the client set no bound of its own.
const inlineHint = 256 << 10

// opened is a source whose context outlives the call that opened it.
type opened struct {
	sandbox.Source
	cancel context.CancelFunc
	detach func() bool
}

// openSource opens a file so that it ends with the call until it is detached.
func (cl *call) openSource(path string, opts sandbox.ReadOptions) (*opened, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(cl.ctx))
	detach := context.AfterFunc(cl.ctx, cancel)
	src, err := cl.backend().OpenRead(ctx, path, opts)
	if err != nil {
		detach()
		cancel()
		if cl.ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = sandbox.Cancelled(cl.ctx, cl.r.Method, path)
		}
		return nil, cl.asked(err)
	}
	return &opened{src, cancel, detach}, nil
}

// asked names the method that the client called in an error of the open that
// served it.
func (cl *call) asked(err error) error {
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Op == cl.r.Method {
		return err
	}
	named := *e
	named.Op = cl.r.Method
	return &named
}

// Close implements sandbox.Source.
func (o *opened) Close() error {
	err := o.Source.Close()
	o.detach()
	o.cancel()
	return err
}

// readFile is a read into memory. The budget is taken before the bytes are
// read, as soon as it is known how many they are.
func (cl *call) readFile(p *rpc.ReadParams) (rpc.Result, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	opts := p.Options
	if !opts.InlineMax.Known {
		opts.InlineMax = sandbox.Some[int64](inlineHint)
	}
	src, err := cl.openSource(p.Path, opts)
	if err != nil {
		return nil, err
	}
	length, known := src.Length()
	most := cl.c.peer.limits.MaxBufferedBytes
	if known && length > most {
		src.Close()
		return nil, tooLarge(most)
	}
	if known && p.Options.InlineMax.Known && length > p.Options.InlineMax.Value {
		return cl.mintOpened(p.Path, src, length)
	}
	defer src.Close()
	var data []byte
	if known {
		data, err = cl.readKnown(src, length)
	} else {
		data, err = cl.readToEnd(src, most)
	}
	if err != nil {
		return nil, err
	}
	if _, err := src.Finish(int64(len(data))); err != nil {
		return nil, err
	}
	file := sandbox.FileContent{Data: data, ETag: src.ETag()}
	if file.Size, known = src.Size(); !known {
		file.Size = p.Options.Offset + int64(len(data))
	}
	if max := p.Options.InlineMax; max.Known && int64(len(data)) > max.Value {
		return cl.mintContent(p.Path, file)
	}
	return &rpc.ReadResult{File: file}, nil
}

func tooLarge(most int64) error {
	return &sandbox.Error{Kind: sandbox.KindTooLarge, Limit: sandbox.Some(most)}
}

// readKnown reads exactly n bytes.
func (cl *call) readKnown(src *opened, n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if err := cl.take(n); err != nil {
		return nil, err
	}
	data := cl.borrow(n)
	got, err := io.ReadFull(src.Reader(), data)
	switch {
	case err == nil:
		return data, nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		// The source knows better why: Finish says it.
		if _, err := src.Finish(int64(got)); err != nil {
			return nil, err
		}
		return nil, &sandbox.Error{Kind: sandbox.KindChanged, Message: "the file shrank while it was read"}
	}
	return nil, err
}

// borrow returns a buffer that goes back to its pool with the last look at the
// answer. Where there is no answer that refers to it, it is left to the
// collector.
func (cl *call) borrow(n int64) []byte {
	data, home := cl.c.s.contents.lend(n)
	if home != nil {
		cl.lent = func() { home.Put(&data) }
	}
	return data
}

// readToEnd reads a file that does not say how long it is. It never waits for
// the budget while it holds some of it: two such reads could wait for each
// other.
func (cl *call) readToEnd(src *opened, most int64) ([]byte, error) {
	const step = 64 << 10
	var data []byte
	for {
		if len(data) == cap(data) {
			more := int64(max(step, cap(data)))
			if err := cl.takeMore(more); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, int64(cap(data))+more), data...)
		}
		n, err := src.Reader().Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if int64(len(data)) > most {
			return nil, tooLarge(most)
		}
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// takeMore takes n bytes of the budget, waiting only for the first.
func (cl *call) takeMore(n int64) error {
	if cl.held == 0 {
		return cl.take(n)
	}
	b := cl.c.peer.budget
	if !b.grab(n) {
		return exhausted("the buffered calls of this tenant hold too much", b.most)
	}
	cl.held += n
	return nil
}
