package worker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/controld/controld/integration/load/peer"
	"github.com/controld/controld/sandbox"
)

// calls repeats one call, InFlight at a time, and times each.
func (w *worker) calls(ctx context.Context, req Request) (Reply, error) {
	call, err := w.caller(ctx, req)
	if err != nil {
		return Reply{}, err
	}
	for range 3 { // so that connections stand and pools are filled
		if err := call(); err != nil {
			return Reply{}, fmt.Errorf("%s %s: %w", req.Stack, req.Call, err)
		}
	}
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(req.For)
	for range req.InFlight {
		wg.Go(func() {
			took, err := repeat(call, end)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			if err != nil {
				failed = fmt.Errorf("%s %s: %w", req.Stack, req.Call, err)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if failed != nil {
		return Reply{}, failed
	}
	slices.Sort(all)
	return Reply{Took: elapsed, P50: all[len(all)/2], P99: all[len(all)*99/100], PerSec: float64(len(all)) / elapsed.Seconds()}, nil
}

// repeat calls until end, three times at least.
func repeat(call func() error, end time.Time) ([]time.Duration, error) {
	var took []time.Duration
	for now := time.Now(); len(took) < 3 || now.Before(end); {
		if err := call(); err != nil {
			return took, err
		}
		then := time.Now()
		took = append(took, then.Sub(now))
		now = then
	}
	return took, nil
}

// bareShort are the short streams without a protocol, by call.
var bareShort = map[string]func(addr, path string, buf []byte) func() (int, error){
	"stream": peer.BareShort, "shared stream": peer.BareShared,
}

// caller returns the call of a stack.
func (w *worker) caller(ctx context.Context, req Request) (func() error, error) {
	switch req.Stack {
	case Controld, ControldTLS:
		return w.controldCaller(ctx, req)
	case peer.GRPC:
		c, err := w.dialGRPC(req.Addr)
		return func() error {
			b, err := c.Call(ctx, req.Call, req.Remote)
			if req.Call == "read" {
				return whole(len(b), req.Size, err)
			}
			return err
		}, err
	case peer.RPC2:
		return w.rpc2Caller(ctx, req)
	case peer.HTTP:
		buf := make([]byte, req.Size)
		return func() error {
			n, err := peer.Get(ctx, req.Addr, req.Remote, buf)
			return whole(n, req.Size, err)
		}, nil
	case peer.Bare:
		if req.Call == "exec" {
			return peer.BareExec(req.Addr), nil
		}
		buf := make([]byte, req.Size)
		if ways := bareShort[req.Call]; ways != nil {
			short := ways(req.Addr, req.Remote, buf)
			return func() error {
				n, err := short()
				return whole(n, req.Size, err)
			}, nil
		}
		return func() error {
			n, err := peer.BareRead(req.Addr, req.Remote, buf)
			return whole(n, req.Size, err)
		}, nil
	case Local:
		return func() error { return peer.Exec(ctx) }, nil
	}
	return nil, fmt.Errorf("no calls with %q", req.Stack)
}

func whole(n int, size int64, err error) error {
	if err == nil && int64(n) != size {
		err = fmt.Errorf("%d bytes of %d", n, size)
	}
	return err
}

func (w *worker) controldCaller(ctx context.Context, req Request) (func() error, error) {
	sb, err := w.sandbox(ctx, req)
	if err != nil {
		return nil, err
	}
	content := bytes.Repeat([]byte{0xff}, int(req.Size)) // no text: the worse case
	buf := make([]byte, max(req.Size, 1))
	return map[string]func() error{
		"stat": func() error {
			_, err := sb.Stat(ctx, req.Remote, sandbox.StatOptions{})
			return err
		},
		"read": func() error {
			c, err := sb.ReadFileBuffer(ctx, req.Remote, sandbox.ReadOptions{})
			return whole(len(c.Data), req.Size, err)
		},
		"write": func() error {
			_, err := sb.WriteFile(ctx, req.Remote, content, sandbox.WriteOptions{})
			return err
		},
		"stream": func() error {
			s, err := sb.ReadFileStream(ctx, req.Remote, sandbox.ReadOptions{})
			if err != nil {
				return err
			}
			defer s.Close()
			n, err := io.ReadFull(s, buf)
			if err == nil {
				_, err = s.Read(buf[:1]) // the verdict
			}
			if err == io.EOF {
				err = nil
			}
			return whole(n, req.Size, err)
		},
		"exec": func() error {
			r, err := sb.Exec(ctx, "true", sandbox.ExecOptions{})
			if err == nil && r.ExitCode != 0 {
				err = fmt.Errorf("exit code %d", r.ExitCode)
			}
			return err
		},
	}[req.Call], nil
}

func (w *worker) rpc2Caller(ctx context.Context, req Request) (func() error, error) {
	c, err := w.dialRPC2(req.Addr)
	if err != nil {
		return nil, err
	}
	content := bytes.Repeat([]byte{0xff}, int(req.Size))
	return map[string]func() error{
		"stat": func() error { return c.Stat(ctx, req.Remote) },
		"read": func() error {
			b, err := c.Read(ctx, req.Remote)
			return whole(len(b), req.Size, err)
		},
		"write": func() error { return c.Write(ctx, req.Remote, content) },
	}[req.Call], nil
}
