package worker

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/load/peer"
	"github.com/controld/controld/sandbox"
)

// Downloads of the bare pair that reach their file in another way.
const (
	DownCopy     = "down, read and write"
	DownPipeline = "down, two threads"
	DownMapped   = "down, mapped file"
)

// bulk moves one file, from the call to the verdict, and looks at the size of
// what came of it. The connection of a stack that has one stands before the
// clock starts.
func (w *worker) bulk(ctx context.Context, req Request) (Reply, error) {
	move, err := w.mover(ctx, req)
	if err != nil {
		return Reply{}, err
	}
	start := time.Now()
	if err := move(); err != nil {
		return Reply{}, fmt.Errorf("%s %s: %w", req.Stack, req.Op, err)
	}
	reply := Reply{Took: time.Since(start), Bytes: req.Size}
	target := req.Local
	if req.Op == "up" {
		target = req.Remote
	}
	if req.Op == "recv" || target == os.DevNull {
		return reply, nil // counted on the way
	}
	st, err := os.Stat(target)
	if err != nil {
		return reply, err
	}
	if st.Size() != req.Size {
		return reply, fmt.Errorf("%s %s: %d bytes arrived of %d", req.Stack, req.Op, st.Size(), req.Size)
	}
	return reply, nil
}

// mover returns what to put the clock to.
func (w *worker) mover(ctx context.Context, req Request) (func() error, error) {
	switch req.Stack {
	case Controld, ControldTLS:
		sb, err := w.sandbox(ctx, req)
		return func() error { return controldBulk(ctx, sb, req) }, err
	case peer.Bare, peer.BareTLS:
		trust, err := req.trust()
		return func() error { return bareBulk(req, trust) }, err
	case peer.GRPC:
		c, err := w.dialGRPC(req.Addr)
		if err != nil {
			return nil, err
		}
		if _, err := c.Call(ctx, "stat", "/"); err != nil {
			return nil, err
		}
		if req.Op == "up" {
			return func() error { return c.Up(ctx, req.Remote, req.Local) }, nil
		}
		return func() error { return c.Down(ctx, req.Remote, req.Local) }, nil
	}
	return nil, fmt.Errorf("no bulk transfer with %q", req.Stack)
}

func controldBulk(ctx context.Context, sb *adapter.Sandbox, req Request) error {
	switch req.Op {
	case "up":
		f, err := os.Open(req.Local)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = sb.WriteFileStream(ctx, req.Remote, f, sandbox.WriteOptions{Size: sandbox.Some(req.Size), Sync: req.Sync})
		return err
	case "down":
		s, err := sb.ReadFileStream(ctx, req.Remote, sandbox.ReadOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		out, err := os.Create(req.Local)
		if err != nil {
			return err
		}
		defer out.Close()
		n, err := io.Copy(out, s)
		if err == nil && n != req.Size {
			err = fmt.Errorf("%d bytes of %d", n, req.Size)
		}
		return err
	}
	src, err := sb.OpenRead(ctx, req.Remote, sandbox.ReadOptions{})
	if err != nil {
		return err
	}
	defer src.Close()
	if err := drain(src.Reader(), req.Size); err != nil {
		return err
	}
	_, err = src.Finish(req.Size)
	return err
}

// bareBulk moves a file with a bare server, over TLS where it is to be trusted.
func bareBulk(req Request, trust *tls.Config) error {
	switch req.Op {
	case "up":
		return peer.BareUp(req.Addr, trust, req.Remote, req.Local, req.Size)
	case "down", DownCopy, DownPipeline, DownMapped:
		way := map[string]peer.Way{"down": peer.Splice, DownCopy: peer.CopyOver, DownPipeline: peer.Pipeline, DownMapped: peer.IntoMap}[req.Op]
		return peer.BareDown(req.Addr, trust, req.Remote, req.Local, req.Size, way)
	}
	conn, err := peer.BareOpen(req.Addr, trust, req.Remote, req.Size)
	if err != nil {
		return err
	}
	defer conn.Close()
	return drain(conn, req.Size)
}

// drain is the client that does nothing but recv into 1 MiB.
func drain(r io.Reader, size int64) error {
	buf := make([]byte, 1<<20)
	for left := size; left > 0; {
		n, err := r.Read(buf[:min(left, int64(len(buf)))])
		left -= int64(n)
		if err != nil && left > 0 {
			return fmt.Errorf("%d bytes are missing: %w", left, err)
		}
	}
	return nil
}
