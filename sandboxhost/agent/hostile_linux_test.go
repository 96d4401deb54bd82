package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// answers wants the agent to answer a file call and a command in time, and
// returns which life it is.
func (p *caged) answers(t *testing.T) (epoch string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerBy)
	defer cancel()
	if _, err := p.Stat(ctx, ".", sandbox.StatOptions{}); err != nil {
		t.Fatalf("stat: %v", err)
	}
	if res, err := p.Exec(ctx, "echo hi", sandbox.ExecOptions{}); err != nil || string(res.Stdout) != "hi\n" {
		t.Fatalf("exec: %+v, %v", res, err)
	}
	info, err := p.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return info.Epoch
}

// unharmed wants the agent to answer, in the life in which it was started.
func (p *caged) unharmed(t *testing.T) {
	t.Helper()
	if epoch := p.answers(t); epoch != p.epoch {
		t.Fatalf("it is another life: %s, was %s", epoch, p.epoch)
	}
}

// suffers has the workload do something to the agent, and returns how it
// ended.
func (p *caged) suffers(t *testing.T, what string) sandbox.ShellResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := p.Exec(ctx, "/foe", sandbox.ExecOptions{Env: map[string]string{foeEnv: what, "GORACE": "atexit_sleep_ms=0"}})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return res
}

// TestSignalsFromInside: process 1 is ended by none, in whatever way it is sent.
func TestSignalsFromInside(t *testing.T) {
	p := newCage(t).start(t)
	for sig := 1; sig <= 64; sig++ {
		if res := p.suffers(t, fmt.Sprintf("signal %d", sig)); res.ExitCode != 0 {
			t.Fatalf("signal %d: %+v", sig, res)
		}
		p.unharmed(t)
	}
}

// TestSignalsFromOutside: SIGKILL ends process 1, and SIGSTOP, which is not
// tried, stops it.
func TestSignalsFromOutside(t *testing.T) {
	p := newCage(t).start(t)
	pid := p.first(t)
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if sig == syscall.SIGKILL || sig == syscall.SIGSTOP {
			continue
		}
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	p.unharmed(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGKILL) {
		t.Errorf("bwrap ends with %d", code)
	}
}

// TestNobodyReadsWhatItSays: a standard error that is broken is no end.
func TestNobodyReadsWhatItSays(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	c := newCage(t)
	c.stderr = w
	c.start(t).unharmed(t)
}

// TestKillOfEverybody: process 1 stays, and the next command runs.
func TestKillOfEverybody(t *testing.T) {
	p := newCage(t).start(t)
	if res, err := p.Exec(t.Context(), "sleep 300 & kill -9 -1; wait $!; echo $?", sandbox.ExecOptions{}); err != nil || string(res.Stdout) != "137\n" {
		t.Errorf("%+v, %v", res, err)
	}
	p.suffers(t, "massacre")
	p.unharmed(t)
}

// TestSpies: the workload sees and changes nothing that is process 1's own.
func TestSpies(t *testing.T) {
	p := newCage(t).start(t)
	if res := p.suffers(t, "spy"); res.ExitCode != 0 {
		t.Errorf("it got:\n%s%s", res.Stdout, res.Stderr)
	}
	p.unharmed(t)
}

// TestSpiesSeeThroughIt: without what TestSpies holds, they see it all.
func TestSpiesSeeThroughIt(t *testing.T) {
	c := newCage(t)
	c.args = []string{"--traceable"}
	if res := c.start(t).suffers(t, "spy"); !strings.Contains(string(res.Stdout), "process_vm_readv") || !strings.Contains(string(res.Stdout), "pidfd_getfd") {
		t.Errorf("they see nothing anyway:\n%s%s", res.Stdout, res.Stderr)
	}
}

// TestDefacedProgram: the program cannot be changed, and without its socket it
// goes on.
func TestDefacedProgram(t *testing.T) {
	for _, given := range []bool{true, false} {
		c := newCage(t)
		what := "deface"
		if c.given = given; !given {
			what = "deface /workspace/agent"
		}
		p := c.start(t)
		if res := p.suffers(t, what); res.ExitCode != 0 {
			t.Errorf("given %v: it did:\n%s%s", given, res.Stdout, res.Stderr)
		}
		p.unharmed(t)
	}
}

// TestStrangersAreFew: what does not say hello cannot take all descriptors.
func TestStrangersAreFew(t *testing.T) {
	c := newCage(t)
	p := c.start(t)
	var last net.Conn
	for range 1024 + 8 {
		conn, err := net.Dial("unix", c.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		last = conn
	}
	last.SetReadDeadline(time.Now().Add(4 * time.Second)) // at 5 s all are closed
	if n, err := last.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one too many is not closed: %v", err)
	}
	p.unharmed(t)
}

// TestFloodFromInside: who sees the socket gets nothing by it, and the host
// that is connected is answered all the while.
func TestFloodFromInside(t *testing.T) {
	c := newCage(t)
	c.given = false
	p := c.start(t)
	ended := make(chan sandbox.ShellResult, 1)
	go func() { ended <- p.suffers(t, "flood /workspace/agent") }()
	var longest time.Duration
	for running := true; running; {
		began := time.Now()
		p.unharmed(t)
		longest = max(longest, time.Since(began))
		select {
		case res := <-ended:
			running = false
			if res.ExitCode != 0 {
				t.Errorf("%+v", res)
			}
		default:
		}
	}
	t.Logf("the longest answer took %v", longest)
	if _, err := os.Stat(filepath.Join(c.work, "owned")); err == nil {
		t.Error("a call without the secret was done")
	}
	// The strangers are gone once the server has seen their ends.
	other := c.client(t)
	await(t, "a place for another connection", func() bool { return other.Ping(t.Context()) == nil })
	if epoch := (&caged{Sandbox: other}).answers(t); epoch != p.epoch {
		t.Errorf("another connection meets the life %s, not %s", epoch, p.epoch)
	}
}

// TestStateIsSwept: what a killed agent has left in the workspace is gone when
// the next one answers, and no command sees where that was written down.
func TestStateIsSwept(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c := newCage(t)
	c.state, c.args = dir, []string{"--state", "/proc/self/fd/4"}
	p := c.start(t)
	if names, _ := filepath.Glob(dir.Name() + "/*.journal"); len(names) != 1 {
		t.Fatalf("it keeps %v", names)
	}
	if res, err := p.Exec(t.Context(), "ls /proc/1/fd/4/; find / -name '*.journal' 2>/dev/null", sandbox.ExecOptions{}); err != nil || len(res.Stdout) > 0 {
		t.Errorf("a command sees %s, %v", res.Stdout, err)
	}
	// The moment in which a file has such a name is too short to be hit.
	left, stranger := filepath.Join(c.work, ".controld-left"), filepath.Join(c.work, ".controld-stranger")
	for _, name := range []string{left, stranger} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(c.work)
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(map[string]any{"dir": []byte("/workspace"), "temp": ".controld-left", "ino": info.Sys().(*syscall.Stat_t).Ino})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir.Name(), "dead.journal"), append(line, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	// Bwrap ends behind the agent; killed itself it would end before.
	if err := syscall.Kill(p.first(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait()
	again := c.start(t)
	if again.epoch == p.epoch {
		t.Error("it is the same life")
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what was written down is still there: %v", err)
	}
	if _, err := os.Stat(stranger); err != nil {
		t.Errorf("what was not is gone: %v", err)
	}
	if names, _ := filepath.Glob(dir.Name() + "/*.journal"); len(names) != 1 {
		t.Errorf("it keeps %v", names)
	}
}

// TestCommandsGetNothing: neither the socket that was handed over, nor the
// variables, nor the secret, nor a signal that is ignored or blocked.
func TestCommandsGetNothing(t *testing.T) {
	c := newCage(t)
	p := c.start(t)
	for what, c := range map[string]struct{ command, want string }{
		"descriptors": {"ls /proc/self/fd", "0\n1\n2\n3\n"},                   // the last is the directory
		"a keeper":    {"echo $PPID; set -- /proc/[0-9]*; echo $#", "1\n2\n"}, // the agent and the shell
		"variables":   {"env | grep -c LISTEN", "0\n"},
		"signals":     {"cat /proc/self/status | grep -E 'Sig(Blk|Ign|Cgt)' | tr -d '\\t'", "SigBlk:0000000000000000\nSigIgn:0000000000000000\nSigCgt:0000000000000000\n"},
		"a socket":    {"find / -xdev -path /usr -prune -o -type s -print; cat /proc/net/unix | grep -c agent", "0\n"},
		"the secret": {"cat /proc/1/cmdline /proc/1/environ 2>/dev/null | grep -c '" + c.secret + "';" +
			"grep -rl --exclude-dir=usr --exclude-dir=proc --exclude-dir=sys --devices=skip '" + c.secret + "' / 2>/dev/null", "0\n"},
	} {
		res, err := p.Exec(t.Context(), c.command, sandbox.ExecOptions{})
		if err != nil || string(res.Stdout) != c.want {
			t.Errorf("%s: %q %s, %v", what, res.Stdout, res.Stderr, err)
		}
	}
}

// TestNoProc: without /proc an agent can do nothing, and says so.
func TestNoProc(t *testing.T) {
	c := newCage(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.noProc, c.stderr = true, w
	p := c.run(t)
	w.Close()
	r.SetReadDeadline(time.Now().Add(answerBy))
	said, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(said), "/proc is not mounted") {
		t.Fatalf("it says %q, %v", said, err)
	}
	if p.cmd.Wait(); p.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ends with %d", p.cmd.ProcessState.ExitCode())
	}
}
