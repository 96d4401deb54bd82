package sandboxhost_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// managing is a host, its state directory and a session of "one" for all of
// the tenant's sandboxes.
type managing struct {
	*sandboxhost.Host
	t      *testing.T
	dir    string
	driver *driver
	s      *server.Session
}

func manage(t *testing.T) *managing {
	t.Helper()
	m := &managing{t: t, dir: filepath.Join(t.TempDir(), "state"), driver: &driver{}}
	m.Host = newHostIn(t, m.dir, m.driver, 0, 0)
	m.s = open(t, m.Host)
	return m
}

func (m *managing) path(elem ...string) string {
	return filepath.Join(append([]string{m.dir, "sandboxes", "acme"}, elem...)...)
}

// states lists what there is as "name state".
func (m *managing) states(t *testing.T, s *server.Session) string {
	t.Helper()
	list, err := m.ListSandboxes(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, one := range list {
		out = append(out, one.Sandbox+" "+string(one.State))
	}
	return strings.Join(out, ", ")
}

// TestList: P17.3 and P17.4. What has a directory is there, whether it runs or
// not, and what else lies beside is not.
func TestList(t *testing.T) {
	m := manage(t)
	for _, name := range []string{"two", "a", ".removed-b-1", "No"} {
		if err := os.Mkdir(m.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(m.path("file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := m.states(t, m.s), "a stopped, one running, two stopped"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m.driver.hold = make(chan struct{})
	created := make(chan error, 1)
	go func() {
		_, err := m.CreateSandbox(t.Context(), m.s, "two")
		created <- err
	}()
	for m.driver.starts.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	if got, want := m.states(t, m.s), "a stopped, one running, two starting"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	close(m.driver.hold)
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	if got, want := m.states(t, m.s), "a stopped, one running, two running"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m.driver.last.Stop()
	if got, want := m.states(t, m.s), "a stopped, one running, two stopped"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCovered: P17.2. A session of a token for one sandbox sees that alone.
func TestCovered(t *testing.T) {
	m := manage(t)
	if _, err := m.CreateSandbox(t.Context(), m.s, "two"); err != nil {
		t.Fatal(err)
	}
	narrow := &server.Session{Tenant: "acme", Sandbox: "two"}
	if got := m.states(t, narrow); got != "two running" {
		t.Errorf("got %s", got)
	}
	if _, err := m.SandboxStatus(t.Context(), narrow, "two"); err != nil {
		t.Error(err)
	}
	for what, s := range map[string]*server.Session{"token of another": narrow, "other tenant": {Tenant: "other", Sandbox: "two", WholeTenant: true}} {
		_, info := m.SandboxStatus(t.Context(), s, "one")
		_, extend := m.ExtendSandbox(t.Context(), s, "one", time.Minute)
		for call, err := range map[string]error{"info": info, "extend": extend, "remove": m.RemoveSandbox(t.Context(), s, "one", true)} {
			if sandbox.KindOf(err) != sandbox.KindNotFound {
				t.Errorf("%s: %s: %v", what, call, err)
			}
		}
	}
	if _, err := m.CreateSandbox(t.Context(), narrow, "one"); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("create: %v", err)
	}
	if !lives(m.s) {
		t.Error("it was removed")
	}
}

// TestCreate: P17.6. Of many at once there is one start, and none where it runs.
func TestCreate(t *testing.T) {
	m := manage(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if s, err := m.CreateSandbox(t.Context(), m.s, "two"); err != nil || s.State != sandbox.StateRunning {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	all.Wait()
	if n := m.driver.starts.Load(); n != 2 {
		t.Errorf("%d starts", n)
	}
}

// TestCreateCancelled: P17.6. Who gives up ends the waiting alone.
func TestCreateCancelled(t *testing.T) {
	m := manage(t)
	m.driver.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.CreateSandbox(ctx, m.s, "two"); sandbox.KindOf(err) != sandbox.KindCancelled {
		t.Errorf("%v", err)
	}
	close(m.driver.hold)
	if _, err := m.CreateSandbox(t.Context(), m.s, "two"); err != nil || m.driver.starts.Load() != 2 {
		t.Errorf("%d starts, %v", m.driver.starts.Load(), err)
	}
}

// TestRemove: P17.7. The files go when that is asked for, and what links lead
// to stays.
func TestRemove(t *testing.T) {
	m := manage(t)
	outside := filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.WriteFile(outside, nil, 0o644),
		os.Symlink(outside, m.path("one", "link")),
		os.MkdirAll(m.path("one", "deep", "er"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := m.RemoveSandbox(t.Context(), m.s, "one", false); err != nil || lives(m.s) || m.s.Reason() != sandbox.ReasonSandboxRestarted {
		t.Fatalf("%v", err)
	}
	if got := m.states(t, m.s); got != "one stopped" {
		t.Errorf("got %s", got)
	}
	for _, files := range []bool{false, true} {
		if err := m.RemoveSandbox(t.Context(), m.s, "one", files); err != nil {
			t.Errorf("one that does not run: %v", err)
		}
	}
	if err := m.RemoveSandbox(t.Context(), m.s, "one", true); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := m.SandboxStatus(t.Context(), m.s, "one"); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("info: %v", err)
	}
	if left, err := os.ReadDir(m.path()); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}

// TestRemoveLink: what the operator has put in the place of a directory is not
// followed either.
func TestRemoveLink(t *testing.T) {
	m := manage(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, m.path("two")); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveSandbox(t.Context(), m.s, "two", true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(m.path("two")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestHelloWaitsForRemoval: P17.8 and P17.13. Removals that are given up go on,
// and a hello gets another life in a directory that is empty.
func TestHelloWaitsForRemoval(t *testing.T) {
	for _, files := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := manage(t)
			if err := os.WriteFile(m.path("one", "f"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			m.driver.last.ends = make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			removed := make(chan error, 1)
			go func() { removed <- m.RemoveSandbox(ctx, m.s, "one", files) }()
			synctest.Wait()
			cancel()
			if err := <-removed; sandbox.KindOf(err) != sandbox.KindCancelled {
				t.Errorf("%v", err)
			}
			opened := make(chan *server.Session, 1)
			go func() { opened <- open(t, m.Host) }()
			time.Sleep(time.Second)
			if n := m.driver.starts.Load(); n != 1 {
				t.Errorf("%d starts beside the old one", n)
			}
			close(m.driver.last.ends)
			s := <-opened
			if s.Epoch == m.s.Epoch || !lives(s) {
				t.Error("the hello got the sandbox that was removed")
			}
			if _, err := os.Stat(m.path("one", "f")); os.IsNotExist(err) != files {
				t.Errorf("files %v: %v", files, err)
			}
		})
	}
}

// TestRemovalsAndHellos: P17.13. Whatever comes at once, a hello gets a sandbox
// that runs, and removals leave nothing.
func TestRemovalsAndHellos(t *testing.T) {
	m := manage(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				open(t, m.Host).Release()
			}
		})
		all.Go(func() {
			for range 50 {
				if err := m.RemoveSandbox(t.Context(), m.s, "one", true); err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	m.RemoveSandbox(t.Context(), m.s, "one", true)
	if left, err := os.ReadDir(m.path()); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestStuck: one that cannot be stopped is told so, keeps its files, and no
// other is started beside it.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := manage(t)
		stuck := m.driver.last
		stuck.stuck = errors.New("it does not end")
		if err := m.RemoveSandbox(t.Context(), m.s, "one", true); err == nil {
			t.Error("removed")
		}
		if _, err := os.Stat(m.path("one")); err != nil {
			t.Error(err)
		}
		for range 2 {
			_, err := m.Open(t.Context(), rpc.HelloParams{Token: "secret", Sandbox: "one"}, server.Visitor{})
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Kind != sandbox.KindUnavailable || e.Reason != sandbox.ReasonSandboxStuck || e.Outcome != sandbox.OutcomeNone {
				t.Errorf("%v", err)
			}
		}
		if n := m.driver.starts.Load(); n != 1 {
			t.Errorf("%d starts", n)
		}
		stuck.stuck = nil // by the operator's hand
		if s := open(t, m.Host); s.Epoch == m.s.Epoch {
			t.Error("the same life")
		}
	})
}

// TestSweepDiscarded: what one life of the host has begun to remove the next
// one removes.
func TestSweepDiscarded(t *testing.T) {
	m := manage(t)
	m.Close()
	if err := os.MkdirAll(m.path(".removed-two-1", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	next := newHostIn(t, m.dir, &driver{}, 0, 0)
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(m.path(".removed-two-1")); os.IsNotExist(err) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := os.Stat(m.path("one")); err != nil {
		t.Error(err)
	}
}

// TestStats: P17.3. What a driver knows is told, what it does not know is not.
func TestStats(t *testing.T) {
	m := manage(t)
	s, err := m.SandboxStatus(t.Context(), m.s, "one")
	if err != nil || s.Driver != "test" || s.Instance != m.driver.last.spec.ID || s.Epoch != m.s.Epoch || s.CPU.Known || s.Memory.Known || s.Processes.Known || s.Ends.Known {
		t.Errorf("%+v, %v", s, err)
	}
	m.driver.last.stats = &sandboxhost.Stats{CPU: time.Second, Memory: 0, Processes: 3}
	s, err = m.SandboxStatus(t.Context(), m.s, "one")
	if err != nil || s.CPU != sandbox.Some(time.Second) || s.Memory != sandbox.Some[int64](0) || s.Processes != sandbox.Some[int64](3) {
		t.Errorf("%+v, %v", s, err)
	}
}
