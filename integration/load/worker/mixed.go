package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// step is how far apart the ranges of two transfers start, so that each has
// bytes of its own.
const step = 4 << 10

// mixed moves Count files at once: every other one up, half of each direction
// slowed down, half of the uploads with a digest on the wire. Local is a file
// of random bytes, and Remote a directory, on the same machine. Each transfer
// takes a range of its own of Local; every digest is compared here.
// Uploads that nothing slows go from file to socket in the kernel.
func (w *worker) mixed(ctx context.Context, req Request) (Reply, error) {
	sb, err := w.sandbox(ctx, req)
	if err != nil {
		return Reply{}, err
	}
	movers := make([]mover, req.Count)
	for i := range movers {
		m := mover{sb: sb, req: req, i: i, offset: int64(i) * step, size: req.Size}
		if i/2%2 == 0 {
			m.rate = req.Rate
		} else if i%2 == 1 {
			m.size = req.Size + int64(req.Count-i)*step // to the end of the file
		}
		if m.want, err = digest(req.Local, m.offset, m.size); err != nil {
			return Reply{}, err
		}
		movers[i] = m
	}
	return together(ctx, movers)
}

// together starts all transfers at once.
func together(ctx context.Context, movers []mover) (Reply, error) {
	var moved atomic.Int64
	errs := make([]error, len(movers))
	var wg sync.WaitGroup
	start := time.Now()
	for i := range movers {
		wg.Go(func() {
			move := movers[i].down
			if i%2 == 1 {
				move = movers[i].up
			}
			n, err := move(ctx)
			moved.Add(n)
			if err != nil {
				errs[i] = fmt.Errorf("transfer %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return Reply{Took: time.Since(start), Bytes: moved.Load()}, errors.Join(errs...)
}

// mover is one of the transfers.
type mover struct {
	sb                 *adapter.Sandbox
	req                Request
	i                  int
	offset, size, rate int64
	want               string
}

// digest returns the SHA-256 of a range of a file.
func digest(path string, offset, size int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, offset, size)); err != nil {
		return "", err
	}
	return string(h.Sum(nil)), nil
}

func (m *mover) down(ctx context.Context) (int64, error) {
	s, err := m.sb.ReadFileStream(ctx, m.req.Local, sandbox.ReadOptions{Offset: m.offset, Length: sandbox.Some(m.size)})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	h := sha256.New()
	n, err := io.Copy(h, m.slowed(s))
	if err != nil {
		return n, err
	}
	if n != m.size || string(h.Sum(nil)) != m.want {
		return n, fmt.Errorf("download of %d bytes of %d: the digest differs", n, m.size)
	}
	return n, nil
}

func (m *mover) up(ctx context.Context) (int64, error) {
	f, err := os.Open(m.req.Local)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := f.Seek(m.offset, io.SeekStart); err != nil {
		return 0, err
	}
	var r io.Reader = f
	if m.rate > 0 {
		r = m.slowed(io.LimitReader(f, m.size))
	}
	target := filepath.Join(m.req.Remote, fmt.Sprintf("mixed-%d", m.i))
	opts := sandbox.WriteOptions{Size: sandbox.Some(m.size), Digest: m.i%8 == 1}
	info, err := m.sb.WriteFileStream(ctx, target, r, opts)
	if err != nil {
		return 0, err
	}
	defer m.sb.Rm(context.WithoutCancel(ctx), target, sandbox.RmOptions{Force: true})
	got, err := digest(target, 0, m.size+1)
	if err != nil {
		return info.Bytes, err
	}
	if got != m.want || info.Bytes != m.size {
		return info.Bytes, fmt.Errorf("upload of %d bytes of %d: the digest differs", info.Bytes, m.size)
	}
	return info.Bytes, nil
}

// slowed returns r at the pace of this transfer.
func (m *mover) slowed(r io.Reader) io.Reader {
	if m.rate == 0 {
		return r
	}
	return &slowReader{r: r, pace: pace{rate: m.rate, start: time.Now()}}
}

// slowReader yields bytes when they are due.
type slowReader struct {
	r    io.Reader
	n    int64
	pace pace
}

// Read implements io.Reader.
func (s *slowReader) Read(p []byte) (int, error) {
	s.pace.wait(s.n)
	n, err := s.r.Read(p[:min(len(p), 64<<10)])
	s.n += int64(n)
	return n, err
}
