package worker

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/controld/controld/sandbox"
)

// flow reads a file over and over in Count streams at once, and tells how many
// bytes came in a time For, the first half second apart: until then a flow
// finds its pace.
func (w *worker) flow(ctx context.Context, req Request) (Reply, error) {
	sb, err := w.sandbox(ctx, req)
	if err != nil {
		return Reply{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var got atomic.Int64
	var failed atomic.Pointer[error]
	var streams sync.WaitGroup
	for range req.Count {
		streams.Go(func() {
			for ctx.Err() == nil {
				if err := readCounted(ctx, sb, req.Remote, &got); err != nil && ctx.Err() == nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	before := got.Load()
	time.Sleep(req.For)
	reply := Reply{Took: req.For, Bytes: got.Load() - before}
	cancel()
	streams.Wait()
	if err := failed.Load(); err != nil {
		return reply, *err
	}
	return reply, nil
}

func readCounted(ctx context.Context, sb sandbox.API, path string, got *atomic.Int64) error {
	s, err := sb.ReadFileStream(ctx, path, sandbox.ReadOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	buf := make([]byte, 256<<10)
	for {
		n, err := s.Read(buf)
		got.Add(int64(n))
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
