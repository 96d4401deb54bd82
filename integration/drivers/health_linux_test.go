package drivers

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// signalAgent sends a signal to the processes of the place's one instance.
func (p *place) signalAgent(t *testing.T, sig unix.Signal) {
	t.Helper()
	runs, _ := filepath.Glob(filepath.Join(p.dir, "state", "run", "*"))
	if len(runs) != 1 {
		t.Fatalf("%v", runs)
	}
	p.signalInstance(t, filepath.Base(runs[0]), sig)
}

// signalInstance sends a signal to the processes of an instance.
func (p *place) signalInstance(t *testing.T, id string, sig unix.Signal) {
	t.Helper()
	spec, err := readSpec(filepath.Join(p.dir, "state", "run", id))
	if err != nil {
		t.Fatal(err)
	}
	pids := pidsWith(launch.Mark(spec.Secret))
	if len(pids) == 0 {
		pids = pidsWith(spec.ID) // it has a kernel of its own, in these
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

// TestStoppedAgent: P16.10 of every driver. An agent that is stopped by a signal has
// its sandbox ended, calls are told why, and the next hello finds another.
func TestStoppedAgent(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			p := newPlace(t, append(k.flags(t), "--health-interval", "500ms", "--health-misses", "3"))
			d := p.serve(t)
			a := p.client(t, d)
			result := make(chan error, 1)
			go func() {
				_, err := a.Exec(t.Context(), "touch begun; sleep 1000", sandbox.ExecOptions{})
				result <- err
			}()
			waitFor(t, filepath.Join(p.dir, "state", "sandboxes", "acme", "default", "begun"))
			p.signalAgent(t, unix.SIGSTOP)
			select {
			case err := <-result:
				var e *sandbox.Error
				if !errors.As(err, &e) || e.Kind != sandbox.KindUnavailable || e.Reason != sandbox.ReasonSandboxStuck || e.Outcome != sandbox.OutcomeUnknown {
					t.Errorf("%+v", err)
				}
			case <-time.After(daemonTimeout):
				t.Fatal("nobody notices")
			}
			r, err := p.client(t, d).Exec(t.Context(), "ls", sandbox.ExecOptions{})
			if err != nil || string(r.Stdout) != "begun\n" {
				t.Errorf("the next life: %+v, %v", r, err)
			}
		})
	}
}

// TestFalls: P16.11. A sandbox that is ended as soon as it runs, again and again, is
// refused for a while, and runs behind that.
func TestFalls(t *testing.T) {
	k := kinds["bwrap"]
	k.want(t)
	p := newPlace(t, k.flags(t))
	d := p.serve(t)
	var e *sandbox.Error
	for falls := 0; ; falls++ {
		a := p.client(t, d)
		_, err := a.Info(t.Context())
		if errors.As(err, &e) && falls == 6 {
			break
		}
		if err != nil || falls == 6 {
			t.Fatalf("behind %d falls: %v", falls, err)
		}
		// The command is there before the kill, or the next life would have it.
		begun := fmt.Sprintf("begun%d", falls)
		result := make(chan error, 1)
		go func() {
			_, err := a.Exec(t.Context(), "touch "+begun+"; sleep 1000", sandbox.ExecOptions{})
			result <- err
		}()
		waitFor(t, filepath.Join(p.dir, "state", "sandboxes", "acme", "default", begun))
		p.signalAgent(t, unix.SIGKILL)
		if err := <-result; reason(err) != sandbox.ReasonSandboxRestarted {
			t.Errorf("fall %d: %v", falls, err)
		}
	}
	if e.Kind != sandbox.KindUnavailable || e.Reason != sandbox.ReasonSandboxRestarted || e.Outcome != sandbox.OutcomeNone || e.RetryAfter <= 0 || e.RetryAfter > time.Second {
		t.Errorf("%+v", e)
	}
	time.Sleep(e.RetryAfter) // what it says
	if _, err := p.client(t, d).Info(t.Context()); err != nil {
		t.Errorf("behind %v: %v", e.RetryAfter, err)
	}
}
