package drivers

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// daemonTimeout bounds what takes a second.
const daemonTimeout = 60 * time.Second

// place is the state of one daemon after another.
type place struct {
	dir, secret string
	flags       []string // the driver's
}

func newPlace(t testing.TB, flags []string) *place {
	t.Helper()
	p := &place{dir: t.TempDir(), flags: flags}
	secret, line, err := sandboxhost.NewSecret(sandboxhost.Grant{Tenant: "acme", Sandbox: sandboxhost.AnySandbox})
	if err != nil {
		t.Fatal(err)
	}
	p.secret = secret
	if err := os.WriteFile(filepath.Join(p.dir, "tokens"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// daemon is a controld that serves a place.
type daemon struct {
	cmd   *exec.Cmd
	ended chan error
	ready struct {
		Control, Data []string
		Admin         string
	}
}

func (p *place) serve(t testing.TB) *daemon {
	t.Helper()
	ready := filepath.Join(p.dir, "ready")
	os.Remove(ready)
	args := []string{"serve", "--control", "tcp://127.0.0.1:0", "--data", "tcp://127.0.0.1:0", "--tokens", filepath.Join(p.dir, "tokens"),
		"--state-dir", filepath.Join(p.dir, "state"), "--ready-file", ready, "--log-format", "json"}
	d := &daemon{cmd: exec.Command(program, append(args, p.flags...)...), ended: make(chan error, 1)}
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.cmd.Wait() }()
	t.Cleanup(func() { d.end(t, syscall.SIGTERM) })
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(ready)
		if err == nil {
			if err := json.Unmarshal(text, &d.ready); err != nil {
				t.Fatal(err)
			}
			return d
		}
		if time.Now().After(deadline) || len(d.ended) > 0 {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("the daemon is not ready: %s", text)
		}
	}
}

// end ends the daemon and waits. It may be called twice.
func (d *daemon) end(t testing.TB, sig syscall.Signal) {
	t.Helper()
	d.cmd.Process.Signal(sig)
	select {
	case err := <-d.ended:
		d.ended <- err
	case <-time.After(daemonTimeout):
		t.Error("the daemon does not end")
		d.cmd.Process.Kill()
	}
}

func (p *place) client(t testing.TB, d *daemon) *adapter.Sandbox {
	t.Helper()
	a, err := adapter.New(adapter.Options{Control: d.ready.Control[0], Data: d.ready.Data, Token: p.secret, RetryFor: time.Millisecond, NoKeys: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// waitFor waits until a file is there.
func waitFor(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		} else if !errors.Is(err, os.ErrNotExist) || time.Now().After(deadline) {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// TestAdoption: P16.7. A command with a key outlives the daemon that was told it; the
// next one gives its result, and it ran once. One without is gone.
func TestAdoption(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			p := newPlace(t, k.flags(t))
			workspace := filepath.Join(p.dir, "state", "sandboxes", "acme", "default")
			d := p.serve(t)
			a := p.client(t, d)
			key := uuid.NewString()
			kept := "echo run >>runs; echo begun >begun; while [ ! -e go ]; do sleep 0.01; done; echo the end"
			results := make(chan error, 2)
			go func() {
				_, err := a.Exec(t.Context(), kept, sandbox.ExecOptions{RequestKey: key})
				results <- err
			}()
			go func() {
				_, err := a.Exec(t.Context(), "echo $$ >other; exec sleep 1000", sandbox.ExecOptions{})
				results <- err
			}()
			waitFor(t, filepath.Join(workspace, "begun"))
			waitFor(t, filepath.Join(workspace, "other"))
			before, err := a.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			d.end(t, syscall.SIGKILL)
			for range 2 {
				if err := <-results; err == nil {
					t.Error("a command ended well on a daemon that was killed")
				}
			}
			d = p.serve(t)
			a = p.client(t, d)
			after, err := a.Info(t.Context())
			if err != nil || after.Epoch == before.Epoch {
				t.Errorf("epoch %q, %v", after.Epoch, err)
			}
			if err := os.WriteFile(filepath.Join(workspace, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			r, err := a.Exec(t.Context(), kept, sandbox.ExecOptions{RequestKey: key})
			if err != nil || string(r.Stdout) != "the end\n" {
				t.Errorf("%q, %v", r.Stdout, err)
			}
			if runs, err := os.ReadFile(filepath.Join(workspace, "runs")); err != nil || string(runs) != "run\n" {
				t.Errorf("%q, %v", runs, err)
			}
			if r, err = a.Exec(t.Context(), "kill -0 $(cat other)", sandbox.ExecOptions{}); err != nil || r.ExitCode == 0 {
				t.Errorf("the command without a key lives on: %+v, %v", r, err)
			}
		})
	}
}

// TestNothingIsLeft: a daemon that is told to end takes its sandboxes along.
func TestNothingIsLeft(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			p := newPlace(t, k.flags(t))
			d := p.serve(t)
			a := p.client(t, d)
			word := "left-" + uuid.NewString()
			if _, err := a.Exec(t.Context(), "setsid sleep 1000 "+word+" >/dev/null 2>&1 & setsid sh -c 'sleep 1000; : "+word+"' >/dev/null 2>&1 &", sandbox.ExecOptions{}); err != nil {
				t.Fatal(err)
			}
			records, err := filepath.Glob(filepath.Join(p.dir, "state", "run", "*"))
			if err != nil || len(records) != 1 {
				t.Fatalf("%v, %v", records, err)
			}
			// Those of a kernel of its own are not the machine's.
			if len(withWord(word)) == 0 && k.needs != "runsc" {
				t.Fatal("the processes cannot be seen")
			}
			d.end(t, syscall.SIGTERM)
			if left := withWord(word); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if left := withWord(filepath.Base(records[0])); len(left) > 0 {
				t.Errorf("left of the instance: %v", left)
			}
			if left, _ := filepath.Glob(filepath.Join(p.dir, "state", "run", "*")); len(left) > 0 {
				t.Errorf("left in the state directory: %v", left)
			}
			if left, _ := filepath.Glob("/sys/fs/cgroup/*/controld-" + filepath.Base(records[0])); len(left) > 0 {
				t.Errorf("cgroups left: %v", left)
			}
		})
	}
}

// withWord are the command lines of the machine that hold a word.
func withWord(word string) []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), word) {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}
