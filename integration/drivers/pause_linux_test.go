package drivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// reason is what an error says of something unavailable.
func reason(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.KindUnavailable {
		return ""
	}
	return e.Reason
}

// pausedBytes are more than any buffer on their way holds.
const pausedBytes = 64 << 20

// TestPause: P17.17, P17.18, P17.19 and P17.20 of every driver. What cannot pause says so; else all stands
// still, calls are refused, time goes on, and what was on its way ends behind the
// resume.
func TestPause(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			p := newPlace(t, append(k.flags(t), "--health-interval", "100ms", "--health-misses", "2"))
			d := p.serve(t)
			a := p.inBox(t, d, "box")
			workspace := filepath.Join(p.dir, "state", "sandboxes", "acme", "box")
			result := make(chan error, 2)
			for _, timeout := range []time.Duration{0, 3 * time.Second} {
				go func() {
					r, err := a.Exec(context.Background(), "echo >>begun; while :; do echo >>ticks; [ ! -e go ] || break; sleep 0.01; done", sandbox.ExecOptions{Timeout: timeout})
					if err == nil && r.ExitCode != 0 {
						err = errors.New(string(r.Stderr))
					}
					result <- err
				}()
			}
			waitFor(t, filepath.Join(workspace, "ticks"))
			if _, err := a.Exec(t.Context(), fmt.Sprintf("head -c %d /dev/zero >file", pausedBytes), sandbox.ExecOptions{}); err != nil {
				t.Fatal(err)
			}
			stream, err := a.ReadFileStream(t.Context(), "file", sandbox.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			s, err := a.PauseSandbox(t.Context(), "")
			if name == "bwrap" {
				if sandbox.KindOf(err) != sandbox.KindUnsupported {
					t.Errorf("%+v, %v", s, err)
				}
				p.letGo(t, workspace, result)
				return
			}
			if err != nil || s.State != sandbox.StatePaused {
				t.Fatalf("%+v, %v", s, err)
			}
			before := size(t, filepath.Join(workspace, "ticks"))
			if k.needs != "runsc" { // whose files the daemon has not
				if n, err := io.Copy(io.Discard, stream); err != nil || n != pausedBytes {
					t.Errorf("a transfer: %d bytes, %v", n, err)
				}
			}
			if _, err := a.Stat(t.Context(), "f", sandbox.StatOptions{}); reason(err) != sandbox.ReasonSandboxPaused {
				t.Errorf("a call: %v", err)
			}
			if err := <-result; reason(err) != sandbox.ReasonSandboxStuck { // that with a time limit
				t.Errorf("a command behind its time: %v", err)
			}
			if after := size(t, filepath.Join(workspace, "ticks")); after != before {
				t.Errorf("it went on from %d to %d", before, after)
			}
			if again, err := p.inBox(t, d, "box").PauseSandbox(t.Context(), ""); err != nil || again.Instance != s.Instance {
				t.Errorf("%+v, %v", again, err)
			}
			if err := os.WriteFile(filepath.Join(workspace, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if s, err = a.ResumeSandbox(t.Context(), ""); err != nil || s.State != sandbox.StateRunning {
				t.Fatalf("%+v, %v", s, err)
			}
			if err := <-result; err != nil {
				t.Errorf("a command behind the resume: %v", err)
			}
			p.paused(t, d)
		})
	}
}

// letGo has the commands of TestPause end.
func (p *place) letGo(t *testing.T, workspace string, result <-chan error) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(workspace, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// paused has a sandbox that is paused removed, taken over by another daemon and
// ended with it.
func (p *place) paused(t *testing.T, d *daemon) {
	t.Helper()
	a := p.client(t, d)
	if _, err := a.PauseSandbox(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if err := a.RemoveSandbox(t.Context(), "box", true); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := a.PauseSandbox(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	d.end(t, syscall.SIGKILL)
	d = p.serve(t)
	if r, err := p.client(t, d).Exec(t.Context(), "echo on", sandbox.ExecOptions{}); err != nil || string(r.Stdout) != "on\n" {
		t.Errorf("taken over: %+v, %v", r, err)
	}
	if _, err := p.client(t, d).PauseSandbox(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	d.end(t, syscall.SIGTERM)
	p.empty(t, "run")
}
