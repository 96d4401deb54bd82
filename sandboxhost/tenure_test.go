package sandboxhost_test

import (
	"context"
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

// newTimedHost makes a host whose sandboxes end by time, within a bubble.
func newTimedHost(t *testing.T, d *driver, idleStop, maxLife time.Duration) *sandboxhost.Host {
	t.Helper()
	return newHostIn(t, filepath.Join(t.TempDir(), "state"), d, idleStop, maxLife)
}

func newHostIn(t *testing.T, dir string, d sandboxhost.Driver, idleStop, maxLife time.Duration) *sandboxhost.Host {
	t.Helper()
	tokens, err := sandboxhost.ParseTokens("f", strings.NewReader("acme * "+sum+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: dir, Driver: d, Tokens: tokens, IdleStop: idleStop, MaxLife: maxLife})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// open says hello for the sandbox "one".
func open(t *testing.T, h *sandboxhost.Host) *server.Session {
	t.Helper()
	s, err := h.Open(t.Context(), rpc.HelloParams{Token: "secret", Sandbox: "one"}, server.Visitor{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func lives(s *server.Session) bool {
	select {
	case <-s.Closed:
		return false
	default:
		return true
	}
}

// TestIdleStop: P17.11. A sandbox lives on while it has a session, a call or a
// transfer, and for the time beyond; the next hello starts another on the same
// files.
func TestIdleStop(t *testing.T) {
	const idle = 10 * time.Minute
	wait := func(t *testing.T, d time.Duration) {
		time.Sleep(d)
		synctest.Wait()
	}
	call, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, use := range map[string]func(t *testing.T, s *server.Session) (leave func()){
		"session": func(*testing.T, *server.Session) func() { return func() {} },
		"call": func(t *testing.T, s *server.Session) func() {
			ctx, end := context.WithCancel(t.Context())
			var ended sync.WaitGroup
			ended.Go(func() { s.Backend.Exec(ctx, "", sandbox.ExecOptions{Detach: true}) })
			synctest.Wait()
			s.Release()
			return func() { end(); ended.Wait() }
		},
		"read": func(t *testing.T, s *server.Session) func() {
			src, err := s.Backend.OpenRead(call, "f", sandbox.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.Release()
			return func() { src.Close(); src.Close() }
		},
		"committed write": func(t *testing.T, s *server.Session) func() {
			sink, err := s.Backend.OpenWrite(call, "f", sandbox.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.Release()
			return func() { sink.Commit(call, sandbox.Commit{}); sink.Abort(nil) }
		},
		"aborted write": func(t *testing.T, s *server.Session) func() {
			sink, err := s.Backend.OpenWrite(call, "f", sandbox.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.Release()
			return func() { sink.Abort(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &driver{exec: func(ctx context.Context) { <-ctx.Done() }}
				h := newTimedHost(t, d, idle, 0)
				s := open(t, h)
				leave := use(t, s)
				if name == "session" {
					leave = s.Release
				}
				wait(t, 5*idle)
				if !lives(s) {
					t.Fatal("stopped while it was used")
				}
				leave()
				wait(t, idle-1)
				if !lives(s) {
					t.Error("stopped before its time")
				}
				wait(t, 1)
				if lives(s) {
					t.Error("not stopped")
				}
				again := open(t, h)
				if again.Epoch == s.Epoch || !lives(again) || d.specs[1].Dir != d.specs[0].Dir {
					t.Errorf("%q, then %q in %q", s.Epoch, again.Epoch, d.specs[1].Dir)
				}
				again.Release()
			})
		})
	}
}

// TestIdleTimeBeginsAnew: each use puts the end off, and one who gave up
// waiting for the start is no user.
func TestIdleTimeBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		d := &driver{hold: make(chan struct{})}
		h := newTimedHost(t, d, idle, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Backend(ctx, "acme", "one"); sandbox.KindOf(err) != sandbox.KindCancelled {
			t.Fatal(err)
		}
		close(d.hold)
		synctest.Wait()
		for range 3 {
			time.Sleep(idle - 1)
			open(t, h).Release()
		}
		if n := d.starts.Load(); n != 1 {
			t.Errorf("%d starts", n)
		}
		time.Sleep(idle)
		synctest.Wait()
		select {
		case <-d.last.Done():
		default:
			t.Error("not stopped")
		}
	})
}

// TestHelloMeetsIdleStop: P17.13. Hellos that come at the very moment get a
// sandbox that goes on, the old one or another, and none gets one that is being
// stopped.
func TestHelloMeetsIdleStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Second
		d := &driver{}
		h := newTimedHost(t, d, idle, 0)
		old, fresh := 0, 0
		last := ""
		for range 300 {
			var all sync.WaitGroup
			var mu sync.Mutex
			for range 4 {
				all.Go(func() {
					time.Sleep(idle) // the timer fires in the same moment
					s := open(t, h)
					time.Sleep(idle / 2) // all that is due now happens
					mu.Lock()
					defer mu.Unlock()
					if !lives(s) {
						t.Error("a hello got a sandbox that was stopped")
					}
					if s.Epoch == last {
						old++
					} else {
						fresh++
					}
					last = s.Epoch
					s.Release()
				})
			}
			all.Wait()
		}
		t.Logf("%d times the old one, %d times another", old, fresh)
	})
}

// TestMaxLife: P17.12. A sandbox is stopped when its time is up, used or not,
// and a hello waits for that and gets another.
func TestMaxLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &driver{}
		h := newTimedHost(t, d, 0, time.Hour)
		s := open(t, h)
		info, err := h.SandboxStatus(t.Context(), s, "one")
		if err != nil || !info.Ends.Value.Equal(time.Now().Add(time.Hour)) || !info.Started.Value.Equal(time.Now()) {
			t.Errorf("%+v, %v", info, err)
		}
		time.Sleep(time.Hour - 1)
		synctest.Wait()
		if !lives(s) {
			t.Error("stopped before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if lives(s) || s.Reason() != sandbox.ReasonSandboxRestarted {
			t.Error("not stopped")
		}
		if again := open(t, h); again.Epoch == s.Epoch || !lives(again) {
			t.Error("no other life")
		}
	})
}

// TestExtend: P17.10. The end moves to what is asked for, never to before what
// it was and never beyond the bound.
func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTimedHost(t, &driver{}, 0, time.Hour)
		s := open(t, h)
		began := time.Now()
		time.Sleep(50 * time.Minute)
		for _, tc := range []struct{ ask, want time.Duration }{
			{5 * time.Minute, time.Hour},
			{20 * time.Minute, 70 * time.Minute},
			{15 * time.Minute, 70 * time.Minute},
			{rpc.MaxSandboxExtend, 110 * time.Minute},
		} {
			info, err := h.ExtendSandbox(t.Context(), s, "one", tc.ask)
			if err != nil || !info.Ends.Value.Equal(began.Add(tc.want)) {
				t.Errorf("%v: ends %v behind the start, %v", tc.ask, info.Ends.Value.Sub(began), err)
			}
		}
		time.Sleep(time.Hour - 1)
		synctest.Wait()
		if !lives(s) {
			t.Error("stopped before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if lives(s) {
			t.Error("not stopped")
		}
		if _, err := h.ExtendSandbox(t.Context(), s, "one", time.Minute); sandbox.KindOf(err) != sandbox.KindNotFound {
			t.Errorf("of one that does not run: %v", err)
		}
	})
}

// TestExtendWithoutBound: P17.10. Where nothing ends a sandbox nothing moves.
func TestExtendWithoutBound(t *testing.T) {
	h := newTimedHost(t, &driver{}, 0, 0)
	s := open(t, h)
	if info, err := h.ExtendSandbox(t.Context(), s, "one", time.Minute); err != nil || info.Ends.Known {
		t.Errorf("%+v, %v", info, err)
	}
}

// adopting is a driver whose instances outlive the host.
type adopting struct{ *driver }

func (d adopting) Adopt(_ context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	return &instance{spec: spec, done: make(chan struct{})}, nil
}

// TestTimesOutliveTheHost: P17.10. Another life of the host counts from the
// start of the sandbox, and knows an end that was moved.
func TestTimesOutliveTheHost(t *testing.T) {
	for name, tc := range map[string]struct{ extend, want time.Duration }{
		"as started": {0, time.Hour},
		"extended":   {30 * time.Minute, 80 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "state")
				h := newHostIn(t, dir, &driver{}, 0, time.Hour)
				s := open(t, h)
				began := time.Now()
				time.Sleep(50 * time.Minute)
				if tc.extend > 0 {
					if _, err := h.ExtendSandbox(t.Context(), s, "one", tc.extend); err != nil {
						t.Fatal(err)
					}
				}
				// As a daemon that is killed would leave it.
				left := filepath.Join(t.TempDir(), "left")
				if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				again := newHostIn(t, left, adopting{&driver{}}, 0, time.Hour)
				if err := again.Adopt(t.Context()); err != nil {
					t.Fatal(err)
				}
				s = open(t, again)
				info, err := again.SandboxStatus(t.Context(), s, "one")
				if err != nil || !info.Ends.Value.Equal(began.Add(tc.want)) || !info.Started.Value.Equal(began) {
					t.Errorf("%+v, %v", info, err)
				}
				time.Sleep(time.Until(began.Add(tc.want)))
				synctest.Wait()
				if lives(s) {
					t.Error("not stopped")
				}
			})
		})
	}
}
