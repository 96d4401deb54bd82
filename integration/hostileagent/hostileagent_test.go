package hostileagent_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/controld/controld/integration/hostileagent"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// soon is within which an answer comes that does not wait for anything.
	soon = 10 * time.Second
	// briefly is how long a caller waits for what never comes.
	briefly = 200 * time.Millisecond
)

// driver gives the tenant "liar" an agent with the script, and all others one
// that is honest.
type driver struct {
	script hostileagent.Script
	files  bool
	dir    string

	mu   sync.Mutex
	lied *instance
}

func (*driver) Name() string { return "liar" }

func (d *driver) Start(_ context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	i := &instance{path: filepath.Join(d.dir, spec.Tenant), files: d.files, done: make(chan struct{})}
	os.Remove(i.path)
	ln, err := net.Listen("unix", i.path)
	if err != nil {
		return nil, err
	}
	var s hostileagent.Script
	d.mu.Lock()
	defer d.mu.Unlock()
	if spec.Tenant == "liar" {
		s, d.lied = d.script, i
	}
	i.agent = hostileagent.Serve(ln, s)
	return i, nil
}

func (*driver) Adopt(context.Context, sandboxhost.Spec) (sandboxhost.Instance, error) {
	return nil, sandboxhost.ErrGone
}

// end ends the liar's sandbox, where there is one.
func (d *driver) end() {
	d.mu.Lock()
	i := d.lied
	d.mu.Unlock()
	if i != nil {
		i.Stop()
	}
}

// instance is a sandbox of which there is nothing but its agent.
type instance struct {
	path  string
	files bool
	agent *hostileagent.Agent
	once  sync.Once
	done  chan struct{}
}

func (i *instance) Link() sandboxhost.Link {
	return sandboxhost.Link{Files: i.files, Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", i.path)
	}}
}

func (i *instance) Done() <-chan struct{}    { return i.done }
func (i *instance) Death() sandboxhost.Death { return sandboxhost.Death{} }

func (i *instance) Stop() error {
	i.once.Do(func() { close(i.done); i.agent.Close() })
	return nil
}

func (*instance) Stats(context.Context) (sandboxhost.Stats, error) {
	return sandboxhost.Stats{}, errors.ErrUnsupported
}
func (*instance) Pause(context.Context) error  { return errors.ErrUnsupported }
func (*instance) Resume(context.Context) error { return errors.ErrUnsupported }

// stage is a host with a liar among its sandboxes.
type stage struct {
	t      *testing.T
	driver *driver
	host   *sandboxhost.Host
}

func newStage(t *testing.T, s hostileagent.Script, files bool) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "liar-") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{script: s, files: files, dir: dir}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: filepath.Join(dir, "state"), Driver: d, Limits: sandbox.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.end()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return &stage{t, d, h}
}

// call has the liar asked something, and returns what came of it.
func (s *stage) call(within time.Duration, f func(context.Context, sandbox.Backend) error) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	b, err := s.host.Backend(ctx, "liar", "default")
	if err != nil {
		return err
	}
	return f(ctx, b)
}

// othersAnswer wants the sandbox of another tenant to answer.
func (s *stage) othersAnswer() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), soon)
	defer cancel()
	b, err := s.host.Backend(ctx, "honest", "default")
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := b.Stat(ctx, "f", sandbox.StatOptions{}); err != nil {
		s.t.Errorf("another tenant: %v", err)
	}
	if text, err := b.ReadFile(ctx, "f", sandbox.ReadOptions{}); err != nil || text != hostileagent.Content {
		s.t.Errorf("another tenant reads %q, %v", text, err)
	}
}

// lie is one, and what comes of it.
type lie struct {
	script hostileagent.Script
	call   func(context.Context, sandbox.Backend) error
	// kinds may come; "" is no error.
	kinds []sandbox.Kind
	// says must be in the error.
	says string
	// within is how long the caller waits, soon where zero.
	within time.Duration
}

func (l lie) told(t *testing.T, files bool) {
	s := newStage(t, l.script, files)
	within := l.within
	if within == 0 {
		within = soon
	}
	began := time.Now()
	err := s.call(within, l.call)
	took := time.Since(began)
	found := false
	for _, k := range l.kinds {
		found = found || sandbox.KindOf(err) == k
	}
	if !found || err != nil && !strings.Contains(err.Error(), l.says) {
		t.Errorf("%v (kind %q), want one of %q", err, sandbox.KindOf(err), l.kinds)
	}
	if err != nil && len(err.Error()) > 16<<10 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	if took > soon+within {
		t.Errorf("it took %v", took)
	}
	s.othersAnswer()
}

// descriptors are how many sockets this process has; the runtime has others.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	n := 0
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TestLies: P16.8. Whatever an agent says is an error of its own sandbox, in
// time, and leaves nothing behind in the host.
func TestLies(t *testing.T) {
	for _, files := range []bool{false, true} {
		name := map[bool]string{false: "bytes", true: "files"}[files]
		t.Run(name, func(t *testing.T) {
			newStage(t, hostileagent.Script{}, files).othersAnswer() // what is opened once
		})
		before := descriptors(t)
		t.Run(name, func(t *testing.T) { tellAll(t, files) })
		for deadline := time.Now().Add(soon); descriptors(t) > before; {
			if time.Now().After(deadline) {
				t.Fatalf("%d sockets, %d before", descriptors(t), before)
			}
			runtime.Gosched()
		}
	}
}

// tellers is how many lies are told at once: most wait for time to pass.
const tellers = 12

func tellAll(t *testing.T, files bool) {
	all := lies()
	names := make(chan string)
	var telling sync.WaitGroup
	for range tellers {
		telling.Go(func() {
			for name := range names {
				l := all[name]
				l.script.Files = files
				t.Run(name, func(t *testing.T) { l.told(t, files) })
			}
		})
	}
	for name := range all {
		names <- name
	}
	close(names)
	telling.Wait()
}
