package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/controld/controld/sandbox"
)

// meetingReader yields one half, waits for all others to be as far, and
// yields the rest.
type meetingReader struct {
	first, rest io.Reader
	here        *sync.WaitGroup
	ctx         context.Context
}

func (r *meetingReader) Read(p []byte) (int, error) {
	if r.first != nil {
		n, err := r.first.Read(p)
		if err != io.EOF {
			return n, err
		}
		r.first = nil
		r.here.Done()
		met := make(chan struct{})
		go func() {
			r.here.Wait()
			close(met)
		}()
		select {
		case <-met:
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
	return r.rest.Read(p)
}

// TestHundredUploadsAtOnce: an ordinary user has 64 pipes of 1 MiB, which is
// fewer than there are uploads; those without one go through buffers.
func TestHundredUploadsAtOnce(t *testing.T) {
	const uploads, half = 100, 3 << 20
	p := newPlace(t)
	d := p.start(t, "--traceable")
	sb := p.client(t, d)
	path := filepath.Join(p.dir, "trace")
	tracer := trace(t, d, path, tracedCalls)
	content := func(i int) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "%08d\n", i), 2*half/9+1)[:2*half]
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var here, all sync.WaitGroup
	here.Add(uploads)
	for i := range uploads {
		all.Go(func() {
			body := content(i)
			r := &meetingReader{first: bytes.NewReader(body[:half]), rest: bytes.NewReader(body[half:]), here: &here, ctx: ctx}
			info, err := sb.WriteFileStream(ctx, fmt.Sprint(i), r, sandbox.WriteOptions{})
			if err != nil || info.Bytes != 2*half {
				t.Errorf("upload %d: %+v, %v", i, info, err)
			}
		})
	}
	all.Wait()
	for i := range uploads {
		if got, err := os.ReadFile(filepath.Join(p.cwd(), fmt.Sprint(i))); err != nil || !bytes.Equal(got, content(i)) {
			t.Errorf("upload %d holds %d bytes, %v", i, len(got), err)
		}
	}
	d.kill(t, syscall.SIGTERM)
	if code := d.exitCode(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	tracer.Wait()
	moved := readTrace(t, path)
	t.Logf("as user %d: of %d bytes, splice moved %d, reads %d, the largest of them %d", os.Geteuid(), uploads*2*half, moved.splice/2, moved.copied, moved.largest)
	if moved.splice/2+moved.copied < uploads*2*half || moved.largest > 1<<20 {
		t.Errorf("%+v", moved)
	}
}
