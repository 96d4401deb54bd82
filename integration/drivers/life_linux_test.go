package drivers

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// awaitState waits until a sandbox is in a state.
func awaitState(t *testing.T, a *adapter.Sandbox, name string, want sandbox.State) {
	t.Helper()
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(5 * time.Millisecond) {
		s, err := a.SandboxStatus(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if s.State == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is %s, not %s", name, s.State, want)
		}
	}
}

// inBox says hello for another sandbox of the place.
func (p *place) inBox(t *testing.T, d *daemon, name string) *adapter.Sandbox {
	t.Helper()
	a, err := adapter.New(adapter.Options{Control: d.ready.Control[0], Data: d.ready.Data, Token: p.secret, Sandbox: name, NoKeys: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// TestLife: P17.7, P17.11 and P17.3 of every driver. A sandbox that nobody uses is
// stopped, its files are there for the next life, and go with a removal,
// whoever owns them and whatever they are.
func TestLife(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			p := newPlace(t, append(k.flags(t), "--idle-stop", "300ms", "--max-life", "1h"))
			d := p.serve(t)
			a := p.client(t, d)
			box := p.inBox(t, d, "box")
			r, err := box.Exec(t.Context(), `set -e
				mkdir -p closed/in full; echo kept >full/f; ln -s /etc/passwd link; ln -s .. full/up; mkfifo fifo
				touch closed/in/f; chmod 0 closed/in; chmod 555 closed
				sleep 1000 >/dev/null 2>&1 &`, sandbox.ExecOptions{})
			if err != nil || r.ExitCode != 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			first, err := a.SandboxStatus(t.Context(), "box")
			if err != nil || first.State != sandbox.StateRunning || first.Instance == "" || !first.Ends.Known || first.IdleStop != 300*time.Millisecond {
				t.Errorf("%+v, %v", first, err)
			}
			if first.Processes.Known != first.Memory.Known || k.bounded != nil && !first.CPU.Known {
				t.Errorf("%+v", first)
			}
			box.Close()
			awaitState(t, a, "box", sandbox.StateStopped)
			second, err := a.CreateSandbox(t.Context(), "box")
			if err != nil || second.Instance == first.Instance || second.Epoch == first.Epoch {
				t.Errorf("%+v, %v", second, err)
			}
			in := p.inBox(t, d, "box")
			if text, err := in.ReadFile(t.Context(), "full/f", sandbox.ReadOptions{}); err != nil || text != "kept\n" {
				t.Errorf("%q, %v", text, err)
			}
			if err := a.RemoveSandbox(t.Context(), "box", true); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(filepath.Join(p.dir, "state", "sandboxes", "acme")); err != nil || len(left) != 1 {
				t.Errorf("%v, %v", left, err)
			}
			if err := a.RemoveSandbox(t.Context(), "box", true); sandbox.KindOf(err) != sandbox.KindNotFound {
				t.Errorf("%v", err)
			}
			if _, err := p.inBox(t, d, "box").ReadFile(t.Context(), "full/f", sandbox.ReadOptions{}); sandbox.KindOf(err) != sandbox.KindNotFound {
				t.Errorf("%v", err)
			}
		})
	}
}
