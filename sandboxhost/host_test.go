package sandboxhost_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// driver counts starts and lets a test hold or fail them.
type driver struct {
	starts atomic.Int32
	hold   chan struct{}
	fail   atomic.Bool
	mu     sync.Mutex
	last   *instance
	specs  []sandboxhost.Spec
}

func (d *driver) Name() string { return "test" }

func (d *driver) Start(_ context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	d.starts.Add(1)
	if d.hold != nil {
		<-d.hold
	}
	if d.fail.Load() {
		return nil, errors.New("no")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = &instance{spec: spec, done: make(chan struct{})}
	d.specs = append(d.specs, spec)
	return d.last, nil
}

type instance struct {
	spec sandboxhost.Spec
	once sync.Once
	done chan struct{}
}

func (i *instance) Backend() sandbox.Backend { return backend{spec: i.spec} }
func (i *instance) Done() <-chan struct{}    { return i.done }
func (i *instance) Stop() error              { i.once.Do(func() { close(i.done) }); return nil }

// backend knows its name alone.
type backend struct {
	sandbox.Backend
	spec sandboxhost.Spec
}

func (b backend) Info(context.Context) (sandbox.Info, error) {
	return sandbox.Info{Cwd: b.spec.Dir, Epoch: b.spec.Epoch}, nil
}

func (b backend) Exists(ctx context.Context, _ string, _ sandbox.ExistsOptions) (bool, error) {
	<-ctx.Done()
	return false, nil
}

func newHost(t *testing.T, d *driver, q sandboxhost.Quotas) *sandboxhost.Host {
	t.Helper()
	tokens, err := sandboxhost.ParseTokens("f", strings.NewReader("acme * "+sum+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: filepath.Join(t.TempDir(), "state"), Driver: d, Tokens: tokens, Quotas: q})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestSandboxIsStartedOnce(t *testing.T) {
	d := &driver{hold: make(chan struct{})}
	h := newHost(t, d, sandboxhost.Quotas{})
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Backend(gaveUp, "acme", "one"); sandbox.KindOf(err) != sandbox.KindCancelled {
		t.Fatalf("gave up: %v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := h.Backend(t.Context(), "acme", "one"); err != nil {
				t.Error(err)
			}
		})
	}
	close(d.hold)
	wg.Wait()
	if n := d.starts.Load(); n != 1 {
		t.Fatalf("%d starts", n)
	}
	if _, err := h.Backend(t.Context(), "acme", "two"); err != nil || d.starts.Load() != 2 {
		t.Fatalf("%v, %d starts", err, d.starts.Load())
	}
}

func TestFailedStartIsNotRemembered(t *testing.T) {
	d := &driver{}
	d.fail.Store(true)
	h := newHost(t, d, sandboxhost.Quotas{})
	if _, err := h.Backend(t.Context(), "acme", "one"); err == nil {
		t.Fatal("no error")
	}
	d.fail.Store(false)
	if _, err := h.Backend(t.Context(), "acme", "one"); err != nil {
		t.Fatal(err)
	}
}

func TestAnotherLifeHasAnotherEpoch(t *testing.T) {
	d := &driver{}
	h := newHost(t, d, sandboxhost.Quotas{})
	hello := rpc.HelloParams{Token: "secret", Sandbox: "one"}
	first, err := h.Open(t.Context(), hello, server.Visitor{})
	if err != nil || first.Epoch != h.Epoch() {
		t.Fatalf("%+v, %v", first, err)
	}
	d.last.Stop()
	<-first.Closed
	second, err := h.Open(t.Context(), hello, server.Visitor{})
	if err != nil || second.Epoch == first.Epoch {
		t.Fatalf("%+v, %v", second, err)
	}
	if d.specs[0].Dir != d.specs[1].Dir {
		t.Error("the directory moved")
	}
}

func TestPlaces(t *testing.T) {
	d := &driver{}
	h := newHost(t, d, sandboxhost.Quotas{})
	if _, err := h.Backend(t.Context(), "acme", "one"); err != nil {
		t.Fatal(err)
	}
	spec := d.specs[0]
	if !strings.HasSuffix(spec.Dir, "/sandboxes/acme/one") || spec.Tenant != "acme" || spec.Sandbox != "one" {
		t.Errorf("%+v", spec)
	}
	if info, err := os.Stat(spec.Dir); err != nil || !info.IsDir() {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Dir(spec.Dir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestQuotas(t *testing.T) {
	h := newHost(t, &driver{}, sandboxhost.Quotas{Connections: 1, Calls: 1})
	hello := rpc.HelloParams{Token: "secret", Sandbox: "one"}
	s, err := h.Open(t.Context(), hello, server.Visitor{})
	if err != nil {
		t.Fatal(err)
	}
	exhausted := func(err error) {
		t.Helper()
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Kind != sandbox.KindResourceExhausted || e.Limit != sandbox.Some(int64(1)) || e.RetryAfter <= 0 {
			t.Errorf("%v", err)
		}
	}
	_, err = h.Open(t.Context(), hello, server.Visitor{})
	exhausted(err)
	s.Release()
	if s, err = h.Open(t.Context(), hello, server.Visitor{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	begun := make(chan struct{})
	go func() {
		defer close(ended)
		close(begun)
		for { // until the loop below leaves it the place
			if _, err := s.Backend.Exists(ctx, "f", sandbox.ExistsOptions{}); sandbox.KindOf(err) != sandbox.KindResourceExhausted {
				return
			}
		}
	}()
	<-begun
	gone, stop := context.WithCancel(t.Context())
	stop()
	for { // until the other call holds the one place
		if _, err = s.Backend.Exists(gone, "f", sandbox.ExistsOptions{}); err != nil {
			break
		}
	}
	exhausted(err)
	cancel()
	<-ended
	if _, err := s.Backend.Exists(gone, "f", sandbox.ExistsOptions{}); err != nil {
		t.Error(err)
	}
}

func TestClosedHost(t *testing.T) {
	d := &driver{}
	h := newHost(t, d, sandboxhost.Quotas{})
	if _, err := h.Backend(t.Context(), "acme", "one"); err != nil {
		t.Fatal(err)
	}
	h.Close()
	h.Close()
	select {
	case <-d.last.Done():
	default:
		t.Error("the sandbox goes on")
	}
	if _, err := h.Backend(t.Context(), "acme", "one"); sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("%v", err)
	}
}
