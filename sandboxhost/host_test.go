package sandboxhost_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	exec   func(ctx context.Context) // what a command does
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
	d.last = &instance{spec: spec, exec: d.exec, done: make(chan struct{})}
	d.specs = append(d.specs, spec)
	return d.last, nil
}

func (d *driver) Adopt(context.Context, sandboxhost.Spec) (sandboxhost.Instance, error) {
	return nil, sandboxhost.ErrGone
}

type instance struct {
	spec sandboxhost.Spec
	exec func(ctx context.Context)
	once sync.Once
	done chan struct{}

	ends  chan struct{} // where set, Stop waits for it
	stuck error         // where set, Stop fails with it
	stats *sandboxhost.Stats
	// pauses, where not nil, is told of each pause and resume, which return what
	// comes on paused.
	pauses chan bool
	paused chan error
}

func (i *instance) Link() sandboxhost.Link {
	return sandboxhost.Link{Backend: backend{spec: i.spec, exec: i.exec}}
}
func (i *instance) Done() <-chan struct{}    { return i.done }
func (i *instance) Death() sandboxhost.Death { return sandboxhost.Death{} }
func (i *instance) Stop() error {
	if i.stuck != nil {
		return i.stuck
	}
	i.once.Do(func() {
		if i.ends != nil {
			<-i.ends
		}
		close(i.done)
	})
	return nil
}
func (i *instance) Stats(context.Context) (sandboxhost.Stats, error) {
	if i.stats != nil {
		return *i.stats, nil
	}
	return sandboxhost.Stats{}, errors.ErrUnsupported
}
func (i *instance) Pause(context.Context) error {
	if i.pauses == nil {
		return sandboxhost.Unsupported("pause", "the test driver cannot")
	}
	i.pauses <- true
	return <-i.paused
}
func (i *instance) Resume(context.Context) error {
	if i.pauses == nil {
		return sandboxhost.Unsupported("resume", "the test driver cannot")
	}
	i.pauses <- false
	return <-i.paused
}

// backend knows its name alone.
type backend struct {
	sandbox.Backend
	spec sandboxhost.Spec
	exec func(ctx context.Context)
}

func (b backend) Exec(ctx context.Context, _ string, _ sandbox.ExecOptions) (sandbox.ShellResult, error) {
	b.exec(ctx)
	return sandbox.ShellResult{}, nil
}

func (b backend) OpenRead(context.Context, string, sandbox.ReadOptions) (sandbox.Source, error) {
	return source{}, nil
}

func (b backend) OpenWrite(context.Context, string, sandbox.WriteOptions) (sandbox.Sink, error) {
	return sink{}, nil
}

// source and sink hold nothing.
type (
	source struct{ sandbox.Source }
	sink   struct{ sandbox.Sink }
)

func (source) Close() error { return nil }

func (sink) Abort(cause error) error { return cause }

func (sink) Commit(context.Context, sandbox.Commit) (sandbox.WriteInfo, error) {
	return sandbox.WriteInfo{}, nil
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

func TestQuotaOfCommands(t *testing.T) {
	begun := make(chan struct{})
	d := &driver{exec: func(ctx context.Context) { begun <- struct{}{}; <-ctx.Done() }}
	h := newHost(t, d, sandboxhost.Quotas{Execs: 1})
	one, err := h.Backend(t.Context(), "acme", "one")
	if err != nil {
		t.Fatal(err)
	}
	two, err := h.Backend(t.Context(), "acme", "two")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	run := func(b sandbox.Backend) {
		b.Exec(ctx, "", sandbox.ExecOptions{})
		close(ended)
	}
	go run(one)
	<-begun
	_, err = two.Exec(ctx, "", sandbox.ExecOptions{})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.KindResourceExhausted || e.Limit != sandbox.Some(int64(1)) || e.RetryAfter <= 0 {
		t.Errorf("%v", err)
	}
	cancel()
	<-ended
	ended = make(chan struct{})
	ctx, cancel = context.WithCancel(t.Context())
	go run(two)
	<-begun
	cancel()
	<-ended
}

// TestFewCommandsDoNotWaitForMany: a command of one tenant starts behind a few
// of another's, not behind all that wait.
func TestFewCommandsDoNotWaitForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processors := make(chan struct{}, runtime.NumCPU())
		d := &driver{exec: func(context.Context) {
			processors <- struct{}{}
			time.Sleep(time.Millisecond)
			<-processors
		}}
		h := newHost(t, d, sandboxhost.Quotas{})
		many, err := h.Backend(t.Context(), "many", "default")
		if err != nil {
			t.Fatal(err)
		}
		few, err := h.Backend(t.Context(), "few", "default")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() { many.Exec(t.Context(), "", sandbox.ExecOptions{}) })
		}
		synctest.Wait()
		for i := range 10 {
			began := time.Now()
			if _, err := few.Exec(t.Context(), "", sandbox.ExecOptions{}); err != nil {
				t.Fatal(err)
			}
			// The first meets those that had started before it came.
			if took, most := time.Since(began), 10*time.Millisecond; took > most {
				t.Errorf("command %d took %v", i, took)
			}
		}
		all.Wait()
	})
}

// TestCancelledBeforeItsTurn: a command that waits for its turn can be given
// up and never runs.
func TestCancelledBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int32
		hold := make(chan struct{})
		d := &driver{exec: func(context.Context) { ran.Add(1); <-hold }}
		h := newHost(t, d, sandboxhost.Quotas{})
		b, err := h.Backend(t.Context(), "acme", "default")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 4 * runtime.NumCPU() {
			all.Go(func() { b.Exec(t.Context(), "", sandbox.ExecOptions{}) })
		}
		synctest.Wait()
		before := ran.Load()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := b.Exec(ctx, "", sandbox.ExecOptions{})
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; sandbox.KindOf(err) != sandbox.KindCancelled {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second) // every turn is over by now
		synctest.Wait()
		if n := ran.Load(); n != before {
			t.Errorf("%d commands ran, want %d", n, before)
		}
		close(hold)
		all.Wait()
	})
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
