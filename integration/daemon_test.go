package integration

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

func wantKind(t *testing.T, err error, want sandbox.Kind) *sandbox.Error {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != want {
		t.Fatalf("%v is not of kind %s", err, want)
	}
	return e
}

// TestKilledDaemonIsSwept kills a daemon under a running upload and running
// commands; the next one starts clean, with the old file.
func TestKilledDaemonIsSwept(t *testing.T) {
	for _, cgroups := range []string{"auto", "off"} {
		t.Run("cgroups "+cgroups, func(t *testing.T) {
			p := newPlace(t)
			d := p.start(t, "--cgroups", cgroups)
			sb := p.client(t, d)
			if _, err := sb.WriteFile(t.Context(), "f", []byte("old"), sandbox.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			sink, err := sb.OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := sink.Writer().Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			running := make(chan error, 1)
			go func() {
				_, err := sb.Exec(context.Background(), "setsid sh -c 'echo $$ >> pids; exec sleep 300' & (sh -c 'echo $$ >> pids; exec sleep 300' &); echo $$ >> pids; sleep 300", sandbox.ExecOptions{})
				running <- err
			}()
			pids := filepath.Join(p.cwd(), "pids")
			await(t, "three pids", func() bool {
				text, _ := os.ReadFile(pids)
				return strings.Count(string(text), "\n") == 3
			})
			d.kill(t, syscall.SIGKILL)
			<-d.exited
			if e := wantKind(t, <-running, sandbox.KindConnectionLost); e.Outcome != sandbox.OutcomeUnknown {
				t.Errorf("outcome %q", e.Outcome)
			}
			if _, err := sink.Commit(t.Context(), sandbox.Commit{Bytes: 1 << 20}); err == nil {
				t.Error("a commit to a dead daemon succeeded")
			}

			again := p.start(t, "--cgroups", cgroups)
			text, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			for pid := range strings.FieldsSeq(string(text)) {
				if alive(pid) {
					t.Errorf("process %s outlived the next start", pid)
				}
			}
			names, err := os.ReadDir(p.cwd())
			if err != nil || len(names) != 2 {
				t.Errorf("the sandbox holds %v, %v", names, err)
			}
			sb = p.client(t, again)
			c, err := sb.ReadFileBuffer(t.Context(), "f", sandbox.ReadOptions{})
			if err != nil || string(c.Data) != "old" {
				t.Errorf("f holds %q, %v", c.Data, err)
			}
			if again.ready.Epoch == d.ready.Epoch {
				t.Error("the epoch did not change")
			}
		})
	}
}

// TestDrain: new work is refused, what was minted goes on, the daemon ends
// with 0 once the verdict was fetched.
func TestDrain(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	sb := p.client(t, d)
	sink, err := sb.OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.kill(t, syscall.SIGTERM)
	await(t, "readyz to fail", func() bool {
		resp, err := http.Get("http://" + strings.TrimPrefix(d.ready.Admin, "tcp://") + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	_, err = sb.Stat(t.Context(), ".", sandbox.StatOptions{})
	if e := wantKind(t, err, sandbox.KindUnavailable); e.Reason != sandbox.ReasonDraining {
		t.Errorf("reason %q", e.Reason)
	}
	_, err = p.client(t, d).Info(t.Context())
	if e := wantKind(t, err, sandbox.KindUnavailable); e.Reason != sandbox.ReasonDraining {
		t.Errorf("hello: reason %q", e.Reason)
	}
	if err := sb.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(sink.Writer(), "whole"); err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Commit(t.Context(), sandbox.Commit{Bytes: 5}); err != nil {
		t.Fatal(err)
	}
	if code := d.exitCode(t); code != 0 {
		t.Errorf("exit code %d: %s", code, d.log)
	}
	if b, err := os.ReadFile(filepath.Join(p.cwd(), "f")); err != nil || string(b) != "whole" {
		t.Errorf("f holds %q, %v", b, err)
	}
}

// TestDrainTimeout: what is left at the timeout ends with unavailable, and its
// processes with it.
func TestDrainTimeout(t *testing.T) {
	p := newPlace(t)
	d := p.start(t, "--drain-timeout", "300ms")
	sb := p.client(t, d)
	failed := make(chan error, 1)
	go func() {
		_, err := sb.Exec(context.Background(), "echo $$ > pid; sleep 300", sandbox.ExecOptions{})
		failed <- err
	}()
	pidFile := filepath.Join(p.cwd(), "pid")
	var pid string
	await(t, "the pid", func() bool {
		b, _ := os.ReadFile(pidFile)
		pid = strings.TrimSpace(string(b))
		return pid != ""
	})
	d.kill(t, syscall.SIGTERM)
	if e := wantKind(t, <-failed, sandbox.KindUnavailable); e.Reason != sandbox.ReasonDraining {
		t.Errorf("reason %q", e.Reason)
	}
	if code := d.exitCode(t); code != 1 {
		t.Errorf("exit code %d: %s", code, d.log)
	}
	if alive(pid) {
		t.Error("the command outlived the daemon")
	}
}

// TestSecondSignalStopsAtOnce does not wait for the drain.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	p := newPlace(t)
	d := p.start(t, "--drain-timeout", "10m")
	sb := p.client(t, d)
	go sb.Exec(context.Background(), "echo $$ > pid; sleep 300", sandbox.ExecOptions{})
	await(t, "the command", func() bool { _, err := os.Stat(filepath.Join(p.cwd(), "pid")); return err == nil })
	d.kill(t, syscall.SIGTERM)
	await(t, "the drain", func() bool {
		_, err := sb.Stat(t.Context(), ".", sandbox.StatOptions{})
		return sandbox.KindOf(err) == sandbox.KindUnavailable
	})
	d.kill(t, syscall.SIGTERM)
	if code := d.exitCode(t); code != 1 {
		t.Errorf("exit code %d: %s", code, d.log)
	}
}

func TestQuotas(t *testing.T) {
	p := newPlace(t)
	d := p.start(t, "--max-connections", "2", "--max-calls", "1", "--max-transfers", "2")
	a, b := p.client(t, d), p.client(t, d)
	for _, sb := range []*adapter.Sandbox{a, b} {
		if _, err := sb.Info(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.client(t, d).Info(t.Context())
	if e := wantKind(t, err, sandbox.KindResourceExhausted); e.Limit != sandbox.Some(int64(2)) || e.RetryAfter <= 0 {
		t.Errorf("connections: %+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.Exec(ctx, "echo > begun; sleep 300", sandbox.ExecOptions{})
		ended <- err
	}()
	await(t, "the command", func() bool { _, err := os.Stat(filepath.Join(p.cwd(), "begun")); return err == nil })
	_, err = b.Stat(t.Context(), ".", sandbox.StatOptions{})
	if e := wantKind(t, err, sandbox.KindResourceExhausted); e.Limit != sandbox.Some(int64(1)) {
		t.Errorf("calls: %+v", e)
	}
	cancel()
	wantKind(t, <-ended, sandbox.KindCancelled)
	for range 2 {
		sink, err := a.OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Abort(nil)
	}
	_, err = b.OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
	if e := wantKind(t, err, sandbox.KindResourceExhausted); e.Limit != sandbox.Some(int64(2)) {
		t.Errorf("transfers: %+v", e)
	}
}

// TestCase_C55: the host driver is no boundary for commands, and says so; but
// what lies above a sandbox is closed to other users, and a path of one sandbox
// that is kept to a scope does not lead to another.
func TestCase_C55(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	sb := p.client(t, d)
	if _, err := sb.WriteFile(t.Context(), "f", nil, sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(p.cwd()); dir != p.dir; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	_, err := sb.ReadFile(t.Context(), filepath.Join(p.dir, "tokens"), sandbox.ReadOptions{Scope: "."})
	if sandbox.KindOf(err) != sandbox.KindPermission {
		t.Errorf("a file of the daemon's: %v", err)
	}
	d.Process.Signal(syscall.SIGTERM)
	<-d.exited
	if !strings.Contains(d.log.String(), "no isolation") {
		t.Error("the daemon does not say that this is no boundary")
	}
}

// TestSandboxesAndTenants: another sandbox is another directory, and what a
// token does not cover is refused.
func TestSandboxesAndTenants(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	open := func(o adapter.Options) *adapter.Sandbox {
		o.Control = d.ready.Control[0]
		if o.Token == "" {
			o.Token = p.secret
		}
		sb, err := adapter.New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sb.Close() })
		return sb
	}
	one, two := open(adapter.Options{Sandbox: "one"}), open(adapter.Options{Sandbox: "two"})
	if _, err := one.WriteFile(t.Context(), "f", nil, sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if ok, err := two.Exists(t.Context(), "f", sandbox.ExistsOptions{}); ok || err != nil {
		t.Errorf("two sees one's file: %v, %v", ok, err)
	}
	for name, o := range map[string]adapter.Options{
		"wrong token":  {Token: strings.Repeat("x", 43)},
		"other tenant": {Tenant: "other"},
	} {
		_, err := open(o).Info(t.Context())
		if sandbox.KindOf(err) != sandbox.KindUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	info, err := open(adapter.Options{Tenant: "acme", Sandbox: "one"}).Info(t.Context())
	if err != nil || info.Tenant != "acme" || info.Sandbox != "one" {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestAdmin(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + strings.TrimPrefix(d.ready.Admin, "tcp://") + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/version": `"protocol":1`, "/metrics": "controld_transfers_inflight 0"} {
		if code, body := get(path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200q", path, code, body)
		}
	}
	if code, _ := get("/debug/pprof/"); code != 404 {
		t.Errorf("profiles are open: %d", code)
	}
}
