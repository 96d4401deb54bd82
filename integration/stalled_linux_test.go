package integration

import (
	"crypto/tls"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// TestStalledReadersAndFloods: a hundred readers of large files who stand still,
// and twenty commands that never stop writing, cost a bounded amount of memory,
// whatever carries them.
func TestStalledReadersAndFloods(t *testing.T) {
	for _, tc := range []struct {
		name  string
		opts  adapter.Options
		bound int64 // of what the daemon grows by, in bytes
	}{
		{name: "tcp", bound: 192 << 20},
		{name: "tls", opts: adapter.Options{TLS: &tls.Config{}}, bound: 300 << 20},
		{name: "session", opts: adapter.Options{Mux: true}, bound: 300 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			d, opts := p.startFor(t, tc.opts)
			sb, err := adapter.New(opts)
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Close()
			ran(t, sb, "truncate -s 1G f", sandbox.ExecOptions{})
			idle := resident(t, d.ready.PID, "VmRSS")
			const readers, floods = 100, 20
			for range readers {
				s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			var all sync.WaitGroup
			for range floods {
				all.Go(func() {
					res, err := sb.Exec(t.Context(), "yes", sandbox.ExecOptions{Timeout: 2 * time.Second})
					if err != nil || res.StdoutOmitted == 0 {
						t.Errorf("%d bytes, %d omitted, %v", len(res.Stdout), res.StdoutOmitted, err)
					}
				})
			}
			all.Wait()
			grown := resident(t, d.ready.PID, "VmHWM") - idle
			t.Logf("%d MiB", grown>>20)
			if grown > tc.bound {
				t.Errorf("the daemon grew by %d MiB, bound %d", grown>>20, tc.bound>>20)
			}
		})
	}
}

// startFor starts a daemon for a client with such options, which it completes.
func (p *place) startFor(t *testing.T, o adapter.Options) (*process, adapter.Options) {
	t.Helper()
	o.Token = p.secret
	if o.TLS == nil {
		d := p.start(t)
		o.Control = d.ready.Control[0]
		return d, o
	}
	ca := newAuthority(t, "ca")
	cert, key := writePEM(t, filepath.Join(p.dir, "server"), ca.server("server"))
	d := p.start(t, "--tls-cert", cert, "--tls-key", key, "--control", "tls://127.0.0.1:0", "--data", "tls://127.0.0.1:0")
	o.TLS = &tls.Config{RootCAs: ca.pool()}
	o.Control = d.ready.Control[1]
	return d, o
}
