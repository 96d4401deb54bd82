package integration

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/daemon"
)

func TestScratchTLSSpeed(t *testing.T) {
	const size = 2 << 30
	x := startTrust(t, false, func(c *daemon.Config) {})
	dir := filepath.Join("/dev/shm", "scratch-tls")
	os.MkdirAll(dir, 0o755)
	defer os.RemoveAll(dir)
	src := filepath.Join(dir, "src")
	f, _ := os.Create(src)
	f.Truncate(size)
	f.Close()
	sb := x.adapter(adapter.Options{})
	bare := func(up bool) time.Duration {
		cert := x.ca.server("bare")
		ln, _ := net.Listen("tcp", "127.0.0.1:0")
		tl := tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}})
		done := make(chan struct{})
		begin := time.Now()
		go func() {
			defer close(done)
			c, _ := tl.Accept()
			out, _ := os.Create(filepath.Join(dir, "out"))
			io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{c}, make([]byte, 256<<10))
			out.Close()
			c.Close()
		}()
		c, err := tls.Dial("tcp", ln.Addr().String(), x.config())
		if err != nil {
			t.Fatal(err)
		}
		in, _ := os.Open(src)
		io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{in}, make([]byte, 256<<10))
		c.CloseWrite()
		<-done
		c.Close()
		ln.Close()
		return time.Since(begin)
	}
	for range 3 {
		b := bare(true)
		os.Remove(filepath.Join(dir, "out"))
		begin := time.Now()
		in, _ := os.Open(src)
		if _, err := sb.WriteFileStream(t.Context(), filepath.Join(dir, "out"), in, sandbox.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		up := time.Since(begin)
		in.Close()
		os.Remove(filepath.Join(dir, "out"))
		begin = time.Now()
		r, err := sb.ReadFileStream(t.Context(), src, sandbox.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out, _ := os.Create(filepath.Join(dir, "out"))
		if _, err := io.Copy(out, r); err != nil {
			t.Fatal(err)
		}
		r.Close()
		out.Close()
		down := time.Since(begin)
		os.Remove(filepath.Join(dir, "out"))
		t.Logf("bare %v up %v (%.2f) down %v (%.2f)", b, up, b.Seconds()/up.Seconds(), down, b.Seconds()/down.Seconds())
	}
}
