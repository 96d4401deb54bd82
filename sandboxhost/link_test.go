package sandboxhost_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// remote is a driver whose sandboxes are behind a server in this process, each
// with a listener of its own.
type remote struct {
	backend sandbox.Backend
	// deaf has connections opened and nothing said on them.
	deaf bool
	// dead, where not nil, is closed when nobody reaches an instance any more.
	dead chan struct{}

	mu   sync.Mutex
	last *reached
	spec []sandboxhost.Spec
}

func (*remote) Name() string { return "remote" }

func (d *remote) Start(_ context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spec = append(d.spec, spec)
	d.last = &reached{driver: d, secret: spec.Secret, done: make(chan struct{})}
	d.last.server = server.New(server.Config{Host: oneSecret{d.last}})
	return d.last, nil
}

func (*remote) Adopt(context.Context, sandboxhost.Spec) (sandboxhost.Instance, error) {
	return nil, sandboxhost.ErrGone
}

// reached is one of its instances.
type reached struct {
	driver *remote
	secret string
	server *server.Server
	once   sync.Once
	done   chan struct{}
	death  sandboxhost.Death
	all    sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	frozen chan struct{} // closed when it goes on; nil while it does
}

// oneSecret lets in who shows the instance's secret.
type oneSecret struct{ i *reached }

func (h oneSecret) Open(ctx context.Context, hello rpc.HelloParams, _ server.Visitor) (*server.Session, error) {
	if hello.Token != h.i.secret {
		return nil, &sandbox.Error{Kind: sandbox.KindUnauthenticated}
	}
	info, err := h.i.driver.backend.Info(ctx)
	return &server.Session{Tenant: "agent", Sandbox: hello.Sandbox, Backend: h.i.driver.backend, Info: info, Epoch: "agent's own"}, err
}

func (i *reached) Link() sandboxhost.Link { return sandboxhost.Link{Dial: i.dial} }

func (i *reached) dial(context.Context) (net.Conn, error) {
	select {
	case <-i.done:
		return nil, net.ErrClosed
	default:
	}
	near, pipe := net.Pipe()
	far := &held{pipe, i}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.conns = append(i.conns, far)
	if !i.driver.deaf {
		i.all.Go(func() { i.server.ServeConn(context.Background(), far, server.Control|server.Data) })
	}
	return near, nil
}

// held is the far end of a connection, at which nothing comes any more once the
// instance is frozen.
type held struct {
	net.Conn
	i *reached
}

func (c *held) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.i.mu.Lock()
	frozen := c.i.frozen
	c.i.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-c.i.done:
		}
	}
	return n, err
}

// freeze has nothing come any more until thaw.
func (i *reached) freeze() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.frozen = make(chan struct{})
}

func (i *reached) thaw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.frozen)
	i.frozen = nil
}

// cut loses every connection.
func (i *reached) cut() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.conns {
		c.Close()
	}
	i.conns = nil
}

// die ends the sandbox by itself.
func (i *reached) die(d sandboxhost.Death) {
	i.once.Do(func() {
		i.death = d
		close(i.done)
		i.cut()
		if i.driver.dead != nil {
			close(i.driver.dead)
		}
		i.server.Close()
		i.all.Wait()
	})
}

func (i *reached) Done() <-chan struct{}    { return i.done }
func (i *reached) Death() sandboxhost.Death { return i.death }
func (i *reached) Stop() error              { i.die(sandboxhost.Death{}); return nil }
func (i *reached) Stats(context.Context) (sandboxhost.Stats, error) {
	return sandboxhost.Stats{}, errors.ErrUnsupported
}
func (i *reached) Pause(context.Context) error  { i.freeze(); return nil }
func (i *reached) Resume(context.Context) error { i.thaw(); return nil }

// agentBackend is a sandbox that says no more than the tests need.
type agentBackend struct {
	sandbox.Backend
	name string // the one entry of every directory
	exec func(ctx context.Context) (sandbox.ShellResult, error)
}

func (b agentBackend) Info(context.Context) (sandbox.Info, error) {
	return sandbox.Info{Cwd: "/workspace", Epoch: "agent's own", Capabilities: []string{sandbox.CapExec}}, nil
}

func (b agentBackend) Exec(ctx context.Context, _ string, _ sandbox.ExecOptions) (sandbox.ShellResult, error) {
	return b.exec(ctx)
}

func (b agentBackend) Stat(context.Context, string, sandbox.StatOptions) (sandbox.FileStat, error) {
	return sandbox.FileStat{Type: sandbox.TypeFile}, nil
}

func (b agentBackend) ReadDir(context.Context, string, sandbox.ReadDirOptions) (sandbox.Listing, error) {
	return sandbox.Listing{Names: []string{b.name}}, nil
}

func newRemoteHost(t *testing.T, d *remote) *sandboxhost.Host {
	t.Helper()
	tokens, err := sandboxhost.ParseTokens("f", strings.NewReader("acme * "+sum+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: filepath.Join(t.TempDir(), "state"), Driver: d, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// unavailable wants that kind, for a reason.
func unavailable(t *testing.T, err error, reason string) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.KindUnavailable || e.Reason != reason || e.Outcome != sandbox.OutcomeUnknown {
		t.Errorf("%+v, want unavailable, %s, outcome unknown", err, reason)
	}
}

// hang is a command that goes on until it is cancelled, and then for a while.
func hang(begun chan<- struct{}, release <-chan struct{}) func(context.Context) (sandbox.ShellResult, error) {
	return func(context.Context) (sandbox.ShellResult, error) {
		begun <- struct{}{}
		<-release
		return sandbox.ShellResult{}, nil
	}
}

// TestStuckAgent: P16.3. The answer comes 2 s behind the timeout, whatever the
// agent does, and not behind the time that a cancel is given.
func TestStuckAgent(t *testing.T) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	d := &remote{backend: agentBackend{exec: hang(begun, release)}}
	h := newRemoteHost(t, d)
	t.Cleanup(func() { close(release) })
	b, err := h.Backend(t.Context(), "acme", "one")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = b.Exec(t.Context(), "x", sandbox.ExecOptions{Timeout: 10 * time.Millisecond, KillGrace: sandbox.Some(20 * time.Millisecond)})
	unavailable(t, err, sandbox.ReasonSandboxStuck)
	if took := time.Since(began); took < 2*time.Second+30*time.Millisecond {
		t.Errorf("given up after %v", took)
	}
}

// TestSandboxDiesUnderACall: P16.5, and P16.9: each life has a secret of its own.
func TestSandboxDiesUnderACall(t *testing.T) {
	for reason, death := range map[string]sandboxhost.Death{
		sandbox.ReasonSandboxRestarted: {Detail: "it exited"},
		sandbox.ReasonOutOfMemory:      {OutOfMemory: true},
	} {
		begun, dead := make(chan struct{}, 1), make(chan struct{})
		d := &remote{backend: agentBackend{exec: hang(begun, dead)}, dead: dead}
		h := newRemoteHost(t, d)
		s, err := h.Open(t.Context(), rpc.HelloParams{Token: "secret", Sandbox: "one"}, server.Visitor{})
		if err != nil {
			t.Fatal(err)
		}
		if s.Info.Cwd != "/workspace" || s.Epoch != h.Epoch() || s.Info.Tenant != "acme" || s.Info.Sandbox != "one" {
			t.Errorf("%+v", s.Info)
		}
		results := make(chan error, 1)
		go func() {
			_, err := s.Backend.Exec(t.Context(), "x", sandbox.ExecOptions{})
			results <- err
		}()
		<-begun
		d.last.die(death)
		d.dead = nil
		unavailable(t, <-results, reason)
		if got := s.Reason(); got != reason {
			t.Errorf("the session says %q", got)
		}
		again, err := h.Open(t.Context(), rpc.HelloParams{Token: "secret", Sandbox: "one"}, server.Visitor{})
		if err != nil || again.Epoch == s.Epoch || again.Life == s.Life {
			t.Errorf("%+v, %v", again, err)
		}
		if len(d.spec) != 2 || d.spec[0].Dir != d.spec[1].Dir || d.spec[0].Secret == d.spec[1].Secret || d.spec[0].Secret == "secret" {
			t.Errorf("%d starts", len(d.spec))
		}
	}
}

// cutUnderACall returns a sandbox whose link was lost under a command, what comes
// of that, and what lets the command go.
func cutUnderACall(t *testing.T) (d *remote, b sandbox.Backend, results chan error, release chan struct{}) {
	t.Helper()
	begun := make(chan struct{}, 1)
	release, results = make(chan struct{}), make(chan error, 1)
	d = &remote{backend: agentBackend{exec: hang(begun, release)}}
	b, err := newRemoteHost(t, d).Backend(t.Context(), "acme", "one")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := b.Exec(t.Context(), "x", sandbox.ExecOptions{})
		results <- err
	}()
	<-begun
	d.last.cut()
	return d, b, results, release
}

// TestLostLink: P16.4. The sandbox lives, so the next call goes by another
// connection.
func TestLostLink(t *testing.T) {
	d, b, results, release := cutUnderACall(t)
	if err := <-results; sandbox.KindOf(err) != sandbox.KindConnectionLost && sandbox.KindOf(err) != sandbox.KindOutcomeUnknown {
		t.Errorf("%v", err) // both are link_lost to a client
	}
	close(release)
	if _, err := b.Stat(t.Context(), "f", sandbox.StatOptions{}); err != nil {
		t.Errorf("another call: %v", err)
	}
	if len(d.spec) != 1 {
		t.Errorf("%d starts", len(d.spec))
	}
}

// TestSandboxDiesBehindItsLink: P16.5. Its connections may be lost before its end
// is seen.
func TestSandboxDiesBehindItsLink(t *testing.T) {
	d, _, results, release := cutUnderACall(t)
	close(release)
	time.Sleep(50 * time.Millisecond) // as long as a driver takes to learn why
	d.last.die(sandboxhost.Death{OutOfMemory: true})
	unavailable(t, <-results, sandbox.ReasonOutOfMemory)
}

// TestAgentThatSaysNothing: P16.1. A sandbox that ends before its agent said
// hello could not be started, and its last words say why.
func TestAgentThatSaysNothing(t *testing.T) {
	d := &remote{backend: agentBackend{}, deaf: true}
	h := newRemoteHost(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 1)
	go func() {
		_, err := h.Backend(ctx, "acme", "one")
		results <- err
	}()
	for { // until it is dialled
		d.mu.Lock()
		i := d.last
		d.mu.Unlock()
		if i == nil {
			continue
		}
		i.mu.Lock()
		n := len(i.conns)
		i.mu.Unlock()
		if n > 0 {
			i.die(sandboxhost.Death{Detail: "it said nothing"})
			break
		}
	}
	err := <-results
	if sandbox.KindOf(err) != sandbox.KindStartFailed || !strings.Contains(err.Error(), "it said nothing") {
		t.Errorf("%v", err)
	}
	cancel()
}

// TestNamesOfAnAgent: P16.8.
func TestNamesOfAnAgent(t *testing.T) {
	for name, want := range map[string]sandbox.Kind{
		"a": "", "...": "", " ": "", "..": sandbox.KindInternal, ".": sandbox.KindInternal, "": sandbox.KindInternal,
		"a/b": sandbox.KindInternal, "/etc": sandbox.KindInternal, "a\x00": sandbox.KindInternal,
	} {
		h := newRemoteHost(t, &remote{backend: agentBackend{name: name}})
		b, err := h.Backend(t.Context(), "acme", "one")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.ReadDir(t.Context(), "d", sandbox.ReadDirOptions{}); sandbox.KindOf(err) != want {
			t.Errorf("%q: %v, want kind %q", name, err, want)
		}
	}
}
