package sandboxhost_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// newAttended makes a host that asks its agents, within a bubble, and has the
// deaths told.
func newAttended(t *testing.T, d sandboxhost.Driver, pool int) (*sandboxhost.Host, chan sandboxhost.Death) {
	t.Helper()
	tokens, err := sandboxhost.ParseTokens("f", strings.NewReader("acme * "+sum+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	deaths := make(chan sandboxhost.Death, 100)
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: filepath.Join(t.TempDir(), "state"), Driver: d, Tokens: tokens, Pool: pool,
		Health: sandboxhost.Health{Interval: 10 * time.Second, Misses: 2},
		Ended:  func(_ sandboxhost.Spec, d sandboxhost.Death, _ error) { deaths <- d }})
	if err != nil {
		t.Fatal(err)
	}
	return h, deaths
}

// TestStuckSandboxEnds: P16.10. A sandbox whose agent does not answer any more is
// ended, with calls told why, and the next hello has another.
func TestStuckSandboxEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, dead := make(chan struct{}, 1), make(chan struct{})
		d := &remote{backend: agentBackend{exec: hang(begun, dead)}, dead: dead}
		h, deaths := newAttended(t, d, 0)
		defer h.Close()
		s := open(t, h)
		time.Sleep(time.Hour)
		if !lives(s) {
			t.Fatal("a sandbox that answers was ended")
		}
		result := make(chan error, 1)
		go func() {
			_, err := s.Backend.Exec(t.Context(), "x", sandbox.ExecOptions{})
			result <- err
		}()
		<-begun
		d.last.freeze()
		began := time.Now()
		<-s.Closed
		if took := time.Since(began); took < 20*time.Second || took > 40*time.Second {
			t.Errorf("it took %v", took)
		}
		unavailable(t, <-result, sandbox.ReasonSandboxStuck)
		if got := s.Reason(); got != sandbox.ReasonSandboxStuck {
			t.Errorf("the session says %q", got)
		}
		if death := <-deaths; !death.Stuck || death.Detail == "" {
			t.Errorf("%+v", death)
		}
		d.dead = nil
		if again := open(t, h); again.Life == s.Life {
			t.Error("it is the same life")
		}
	})
}

// TestStuckSpareEnds: what is ready and does not answer is not kept.
func TestStuckSpareEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &remote{backend: agentBackend{}}
		h, deaths := newAttended(t, d, 1)
		defer h.Close()
		h.FillPools()
		synctest.Wait()
		d.last.freeze()
		<-deaths
		time.Sleep(time.Second)
		synctest.Wait()
		if n := h.Ready()[""]; n != 1 || len(d.spec) != 2 {
			t.Errorf("%d are ready, %d starts", n, len(d.spec))
		}
	})
}

// hello opens the sandbox "one" or returns the error.
func hello(t *testing.T, h *sandboxhost.Host) error {
	t.Helper()
	s, err := h.Open(t.Context(), rpc.HelloParams{Token: "secret", Sandbox: "one"}, server.Visitor{})
	if err == nil {
		s.Release()
	}
	return err
}

// falling wants a hello to be refused for so long, for a reason.
func falling(t *testing.T, h *sandboxhost.Host, wait time.Duration, reason string) {
	t.Helper()
	err := hello(t, h)
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.KindUnavailable || e.Outcome != sandbox.OutcomeNone || e.Reason != reason || e.RetryAfter != wait {
		t.Errorf("%+v, want to wait for %v", err, wait)
	}
}

// TestFalls: P16.11. A sandbox that ends soon after its start again and again is
// started later and later; one that lived for a while, or was told to end,
// begins anew.
func TestFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &remote{backend: agentBackend{}}
		h, _ := newAttended(t, d, 0)
		defer h.Close()
		fall := func(times int) {
			t.Helper()
			for range times {
				if err := hello(t, h); err != nil {
					t.Fatal(err)
				}
				d.last.die(sandboxhost.Death{Detail: "it fell", OutOfMemory: len(d.spec)%2 == 0})
			}
		}
		for round := range 3 {
			starts := len(d.spec)
			fall(6)
			for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
				wait *= time.Second
				reason := sandbox.ReasonSandboxRestarted
				if len(d.spec)%2 == 0 {
					reason = sandbox.ReasonOutOfMemory
				}
				falling(t, h, wait, reason)
				time.Sleep(wait - time.Millisecond)
				falling(t, h, time.Millisecond, reason)
				time.Sleep(time.Millisecond)
				fall(1)
			}
			if n := len(d.spec) - starts; n != 14 {
				t.Errorf("%d starts", n)
			}
			time.Sleep(time.Minute)
			switch round {
			case 0: // it lives for a minute
				if err := hello(t, h); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				d.last.die(sandboxhost.Death{Detail: "it fell"})
			case 1: // it is told to end
				if err := hello(t, h); err != nil {
					t.Fatal(err)
				}
				if err := h.RemoveSandbox(t.Context(), session("acme"), "one", false); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// failing is a driver whose starts can be had fail.
type failing struct {
	remote
	fails atomic.Bool
}

func (d *failing) Start(ctx context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	if d.fails.Load() {
		return nil, errors.New("no")
	}
	return d.remote.Start(ctx, spec)
}

// TestFailedStartIsNoWayAround: a start that fails between two falls is neither
// a fall nor the end of them.
func TestFailedStartIsNoWayAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &failing{remote: remote{backend: agentBackend{}}}
		h, _ := newAttended(t, d, 0)
		defer h.Close()
		for range 6 {
			if err := hello(t, h); err != nil {
				t.Fatal(err)
			}
			d.last.die(sandboxhost.Death{Detail: "it fell"})
		}
		falling(t, h, time.Second, sandbox.ReasonSandboxRestarted)
		time.Sleep(time.Second)
		d.fails.Store(true)
		for range 3 {
			if err := hello(t, h); sandbox.KindOf(err) == sandbox.KindUnavailable || err == nil {
				t.Fatal(err)
			}
		}
		d.fails.Store(false)
		if err := hello(t, h); err != nil {
			t.Fatal(err)
		}
		d.last.die(sandboxhost.Death{Detail: "it fell"})
		falling(t, h, 2*time.Second, sandbox.ReasonSandboxRestarted)
	})
}
