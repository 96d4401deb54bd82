package sandboxhost_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// pausable makes the running sandbox's instance one that can be paused at once.
func (m *managing) pausable() *instance {
	i := m.driver.last
	i.pauses, i.paused = make(chan bool, 1), make(chan error, 1)
	return i
}

// written reads what is written down of the sandbox's life.
func (m *managing) written(t *testing.T) (spec sandboxhost.Spec) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "run", m.s.Life, "spec.json"))
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestPause: P17.17, P17.18.
func TestPause(t *testing.T) {
	m := manage(t)
	if _, err := m.PauseSandbox(t.Context(), m.s, "one"); sandbox.KindOf(err) != sandbox.KindUnsupported {
		t.Errorf("%v", err)
	}
	if got := m.states(t, m.s); got != "one running" || m.written(t).Paused {
		t.Errorf("got %s", got)
	}
	i := m.pausable()
	for range 2 { // the second asks the driver for nothing
		i.paused <- nil
		if s, err := m.PauseSandbox(t.Context(), m.s, "one"); err != nil || s.State != sandbox.StatePaused || s.Instance != m.s.Life {
			t.Errorf("%+v, %v", s, err)
		}
		select {
		case paused := <-i.pauses:
			if !paused {
				t.Error("it was resumed")
			}
		default:
			<-i.paused
		}
	}
	if !m.written(t).Paused {
		t.Error("it is not written down")
	}
	_, err := m.s.Backend.Exec(t.Context(), "x", sandbox.ExecOptions{})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.KindUnavailable || e.Reason != sandbox.ReasonSandboxPaused || e.Outcome != sandbox.OutcomeNone {
		t.Errorf("%+v", err)
	}
	if again := open(t, m.Host); again.Life != m.s.Life {
		t.Error("a hello started another life")
	}
	i.paused <- nil
	if s, err := m.ResumeSandbox(t.Context(), m.s, "one"); err != nil || s.State != sandbox.StateRunning {
		t.Errorf("%+v, %v", s, err)
	}
	if paused := <-i.pauses; paused || m.written(t).Paused {
		t.Error("it is paused")
	}
	if _, err := m.s.Backend.OpenRead(t.Context(), "f", sandbox.ReadOptions{}); err != nil {
		t.Error(err)
	}
}

// TestPauseThatFails leaves the sandbox as it was.
func TestPauseThatFails(t *testing.T) {
	m := manage(t)
	i := m.pausable()
	i.paused <- errors.New("no")
	if _, err := m.PauseSandbox(t.Context(), m.s, "one"); err == nil {
		t.Error("no error")
	}
	if _, err := m.s.Backend.OpenRead(t.Context(), "f", sandbox.ReadOptions{}); err != nil || m.written(t).Paused {
		t.Errorf("%v", err)
	}
}

// TestPauseMeetsTheEnd: what ends while it is being paused is resumed, or its end
// would never come.
func TestPauseMeetsTheEnd(t *testing.T) {
	m := manage(t)
	i := m.pausable()
	i.ends = make(chan struct{})
	paused := make(chan error, 1)
	go func() {
		_, err := m.PauseSandbox(t.Context(), m.s, "one")
		paused <- err
	}()
	<-i.pauses // it is being paused
	removed := make(chan error, 1)
	go func() { removed <- m.RemoveSandbox(t.Context(), m.s, "one", false) }()
	for entered(m) { // until the end has begun
	}
	i.paused <- nil
	if resumed := <-i.pauses; resumed {
		t.Error("it is paused once more")
	}
	i.paused <- nil
	if err := <-paused; sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("%v", err)
	}
	close(i.ends)
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if _, err := m.ResumeSandbox(t.Context(), m.s, "one"); sandbox.KindOf(err) != sandbox.KindNotFound {
		t.Errorf("%v", err)
	}
}

// entered tells whether the session's sandbox still lets calls in.
func entered(m *managing) bool {
	_, err := m.s.Backend.OpenRead(m.t.Context(), "f", sandbox.ReadOptions{})
	var e *sandbox.Error
	return !errors.As(err, &e) || e.Reason == sandbox.ReasonSandboxPaused
}

// TestPausedAndTaken: P17.19. A sandbox that is paused goes on with another life of
// the host, and what was extended stays so.
func TestPausedAndTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := filepath.Join(t.TempDir(), "state")
		d := &keeper{living: make(map[string]bool)}
		first := newHostIn(t, state, d, 0, time.Hour)
		m := &managing{Host: first, t: t, dir: state, driver: &d.driver, s: open(t, first)}
		i := m.pausable()
		time.Sleep(10 * time.Minute)
		extended, err := first.ExtendSandbox(t.Context(), m.s, "one", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		i.paused <- nil
		if _, err := first.PauseSandbox(t.Context(), m.s, "one"); err != nil {
			t.Fatal(err)
		}
		d.living[m.s.Life] = true
		second := newHostIn(t, state, d, 0, time.Hour)
		if err := second.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-d.resumed; got != m.s.Life {
			t.Errorf("%s was resumed", got)
		}
		s, err := second.SandboxStatus(t.Context(), session("acme"), "one")
		if err != nil || s.State != sandbox.StateRunning || m.written(t).Paused || !s.Ends.Value.Equal(extended.Ends.Value) {
			t.Errorf("%+v, %v, was extended to %v", s, err, extended.Ends)
		}
	})
}

// TestLongPause: P17.19. However long a pause is, a call that was on its way ends
// behind it, and nobody takes the agent for one that does not answer.
func TestLongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, release := make(chan struct{}, 1), make(chan struct{})
		d := &remote{backend: agentBackend{exec: hang(begun, release)}}
		h, _ := newAttended(t, d, 0)
		defer h.Close()
		s := open(t, h)
		result := make(chan error, 1)
		go func() {
			_, err := s.Backend.Exec(t.Context(), "x", sandbox.ExecOptions{})
			result <- err
		}()
		<-begun
		if _, err := h.PauseSandbox(t.Context(), session("acme"), "one"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if !lives(s) {
			t.Fatalf("it was ended: %s", s.Reason())
		}
		if _, err := h.ResumeSandbox(t.Context(), session("acme"), "one"); err != nil {
			t.Fatal(err)
		}
		close(release)
		if err := <-result; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if !lives(s) {
			t.Errorf("it was ended behind the pause: %s", s.Reason())
		}
	})
}
