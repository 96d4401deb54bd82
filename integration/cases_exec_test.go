package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// ran is a command that must have run.
func ran(t *testing.T, sb sandbox.API, command string, opts sandbox.ExecOptions) sandbox.ShellResult {
	t.Helper()
	res, err := sb.Exec(t.Context(), command, opts)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return res
}

// TestCase_C11, C12: a background child that holds the output open holds no
// answer back, with a timeout or without.
func TestCase_C11(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	for _, timeout := range []time.Duration{0, 20 * time.Second} {
		start := time.Now()
		res := ran(t, sb, "sleep 600 & echo hi", sandbox.ExecOptions{Timeout: timeout})
		if string(res.Stdout) != "hi\n" || res.ExitCode != 0 || res.Reason != sandbox.ReasonExited || !res.Background {
			t.Errorf("%+v", res)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
	}
}

// TestCase_C12: what ended is not timed out because its children live.
func TestCase_C12(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	res := ran(t, sb, "sleep 8 &", sandbox.ExecOptions{Timeout: 5 * time.Second})
	if res.Reason != sandbox.ReasonExited || res.ExitCode != 0 || res.Duration > 4*time.Second {
		t.Errorf("%+v", res)
	}
}

// TestCase_C13, C25: a timeout comes when it is due, with the output so far.
func TestCase_C13(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	for range 2 {
		start := time.Now()
		res := ran(t, sb, "echo before; sleep 30; echo hello", sandbox.ExecOptions{Timeout: 2 * time.Second})
		took := time.Since(start)
		if res.Reason != sandbox.ReasonTimedOut || string(res.Stdout) != "before\n" || took < 2*time.Second || took > 25*time.Second {
			t.Fatalf("%+v after %v", res, took)
		}
	}
}

// TestCase_C14: nothing of a command that timed out is left.
func TestCase_C14(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	ran(t, sb, "echo $$ > pid; sleep 300", sandbox.ExecOptions{Timeout: 2 * time.Second})
	pid, err := os.ReadFile(filepath.Join(p.cwd(), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, []string{strings.TrimSpace(string(pid))})
}

// TestCase_C15: seven ways to survive a cancel, and no survivor.
func TestCase_C15(t *testing.T) {
	for _, cgroups := range []string{"auto", "off"} {
		p := newPlace(t)
		sb := p.client(t, p.start(t, "--cgroups", cgroups))
		const command = `stay='echo $$ >> pids; exec sleep 300'
			sh -c "$stay" & setsid sh -c "$stay" & nohup sh -c "$stay" >/dev/null 2>&1 &
			(sh -c "$stay" &) ; (setsid sh -c "$stay" &) ; (trap '' TERM HUP; sh -c "$stay") & setsid nohup sh -c "$stay" </dev/null >/dev/null 2>&1 &
			wait; sleep 300`
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := sb.Exec(ctx, command, sandbox.ExecOptions{})
			ended <- err
		}()
		var pids []string
		await(t, "seven processes", func() bool {
			text, _ := os.ReadFile(filepath.Join(p.cwd(), "pids"))
			pids = strings.Fields(string(text))
			return len(pids) == 7
		})
		cancel()
		wantKind(t, <-ended, sandbox.KindCancelled)
		awaitEnd(t, pids)
	}
}

// TestCase_C16: what was just written runs; no "text file busy".
func TestCase_C16(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				name := fmt.Sprintf("x%d", i)
				script := fmt.Sprintf("#!/bin/sh\necho %d.%d\n", i, j)
				if _, err := sb.WriteFile(t.Context(), name, []byte(script), sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o755))}); err != nil {
					t.Error(err)
					return
				}
				res, err := sb.Exec(t.Context(), "exec ./"+name, sandbox.ExecOptions{})
				if err != nil || string(res.Stdout) != fmt.Sprintf("%d.%d\n", i, j) {
					t.Errorf("%+v, %v", res, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestCase_C19: nothing of the daemon's is where commands may clean up.
func TestCase_C19(t *testing.T) {
	p := newPlace(t)
	tmp := filepath.Join(p.dir, "tmp")
	if err := os.Mkdir(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	sb := p.client(t, p.start(t))
	ran(t, sb, "rm -rf "+tmp, sandbox.ExecOptions{})
	if res := ran(t, sb, "echo ok", sandbox.ExecOptions{}); string(res.Stdout) != "ok\n" {
		t.Errorf("%+v", res)
	}
	if _, err := sb.WriteFile(t.Context(), "f", []byte("x"), sandbox.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := sb.WriteFileStream(t.Context(), "g", strings.NewReader("x"), sandbox.WriteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestCase_C21: a fast command's output is never lost.
func TestCase_C21(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 60 {
				res, err := sb.Exec(t.Context(), "echo x", sandbox.ExecOptions{})
				if err != nil || string(res.Stdout) != "x\n" || res.ExitCode != 0 {
					t.Errorf("%+v, %v", res, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestCase_C23: with its client a command goes.
func TestCase_C23(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	cmd := exec.Command(binary(t), "exec", "--", "echo $$ > pid; while :; do :; done")
	cmd.Env = append(os.Environ(), "CONTROLD_ADDR="+d.ready.Control[0], "CONTROLD_TOKEN="+p.secret)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid string
	await(t, "the command", func() bool {
		b, _ := os.ReadFile(filepath.Join(p.cwd(), "pid"))
		pid = strings.TrimSpace(string(b))
		return pid != ""
	})
	cmd.Process.Kill()
	cmd.Wait()
	await(t, "the end of the command", func() bool { return !alive(pid) })
}

// TestCase_C24: bytes are carried as they are.
func TestCase_C24(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	for name, content := range map[string][]byte{
		"random": noise(65536), "latin1": []byte("caf\xe9"), "utf16": []byte("\xff\xfeh\x00i\x00"), "bom": []byte("\xef\xbb\xbfx"),
	} {
		if _, err := sb.WriteFile(t.Context(), name, content, sandbox.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		res := ran(t, sb, "cat "+name+"; cat "+name+" >&2", sandbox.ExecOptions{})
		c, err := sb.ReadFileBuffer(t.Context(), name, sandbox.ReadOptions{})
		if err != nil || string(c.Data) != string(content) || string(res.Stdout) != string(content) || string(res.Stderr) != string(content) {
			t.Errorf("%s differs, %v", name, err)
		}
	}
	c, err := sb.ReadFileBuffer(t.Context(), "/bin/sh", sandbox.ReadOptions{Length: sandbox.Some(int64(4))})
	if err != nil || string(c.Data) != "\x7fELF" {
		t.Errorf("%q, %v", c.Data, err)
	}
}

// TestCase_C25: the output before a timeout is kept.
func TestCase_C25(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	res := ran(t, sb, "echo before; sleep 60", sandbox.ExecOptions{Timeout: 2 * time.Second})
	if string(res.Stdout) != "before\n" || res.Reason != sandbox.ReasonTimedOut || res.ExitCode != 124 {
		t.Errorf("%+v", res)
	}
}

// TestCase_C27: of the daemon's environment nothing reaches a command.
func TestCase_C27(t *testing.T) {
	t.Setenv("CONTROLD_SECRET_CANARY", "canary-27")
	t.Setenv("DATABASE_PASSWORD", "canary-27")
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	res := ran(t, sb, "env | sort", sandbox.ExecOptions{Env: map[string]string{"MINE": "1"}})
	for line := range strings.Lines(string(res.Stdout)) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "PATH", "HOME", "USER", "LANG", "TERM", "SHELL", "MINE", "PWD", "OLDPWD", "SHLVL", "_":
		default:
			t.Errorf("variable %s", name)
		}
	}
	if strings.Contains(string(res.Stdout), "canary-27") {
		t.Error("the daemon's environment leaks")
	}
}
