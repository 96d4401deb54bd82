//go:build linux

package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

func sh(t *testing.T, s *Sandbox, command string, o sandbox.ExecOptions) sandbox.ShellResult {
	t.Helper()
	res, err := s.Exec(bg(), command, o)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return res
}

func TestExecResults(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		for _, c := range []struct {
			command, stdin, stdout, stderr string
			code                           int
			signal                         string
			reason                         sandbox.Reason
		}{
			{"printf hi; exit 3", "", "hi", "", 3, "", sandbox.ReasonExited},
			{"printf out; printf err >&2", "", "out", "err", 0, "", sandbox.ReasonExited},
			{"exit 124", "", "", "", 124, "", sandbox.ReasonExited},
			{"kill -KILL $$", "", "", "", 137, "KILL", sandbox.ReasonSignaled},
			{"kill -TERM $$", "", "", "", 143, "TERM", sandbox.ReasonSignaled},
			{"kill -SEGV $$", "", "", "", 139, "SEGV", sandbox.ReasonSignaled},
			{"exit 137", "", "", "", 137, "", sandbox.ReasonExited},
			{"cat", "input", "input", "", 0, "", sandbox.ReasonExited},
			{"cat", "", "", "", 0, "", sandbox.ReasonExited},
			{"true", strings.Repeat("x", 1<<20), "", "", 0, "", sandbox.ReasonExited},
			{"read a; echo $a", "one\n" + strings.Repeat("x", 1<<20), "one\n", "", 0, "", sandbox.ReasonExited},
			{"printf '\\377\\000\\n'", "", "\xff\x00\n", "", 0, "", sandbox.ReasonExited},
			{"true\nprintf two", "", "two", "", 0, "", sandbox.ReasonExited},
			{"umask 077; ulimit -c", "", "0\n", "", 0, "", sandbox.ReasonExited},
		} {
			res := sh(t, s, c.command, sandbox.ExecOptions{Stdin: []byte(c.stdin)})
			if string(res.Stdout) != c.stdout || string(res.Stderr) != c.stderr || res.ExitCode != c.code || res.Signal != c.signal || res.Reason != c.reason || res.Background || res.KillPending || res.Duration <= 0 {
				t.Errorf("%q: %+v", c.command, res)
			}
		}
		if res := sh(t, s, "-n; exit 5", sandbox.ExecOptions{}); res.ExitCode != 5 {
			t.Errorf("%+v", res)
		}
		if res := sh(t, s, "/no/such/program", sandbox.ExecOptions{}); res.ExitCode != 127 {
			t.Errorf("%+v", res)
		}
	})
}

func TestExecParams(t *testing.T) {
	s := open(t, Options{})
	dir := tree(t, s)
	must(0, os.Symlink("/proc/self/cwd", dir+"/magic"))
	big := strings.Repeat("x", 128<<10)
	for _, c := range []struct {
		name, command string
		opts          sandbox.ExecOptions
		kind          sandbox.Kind
		path          string
	}{
		{"NUL", "a\x00b", sandbox.ExecOptions{}, sandbox.KindInvalidParams, ""},
		{"negative timeout", "true", sandbox.ExecOptions{Timeout: -1}, sandbox.KindInvalidParams, ""},
		{"long timeout", "true", sandbox.ExecOptions{Timeout: maxTimeout + 1}, sandbox.KindInvalidParams, ""},
		{"output over the limit", "true", sandbox.ExecOptions{MaxOutputBytes: sandbox.Some(int64(8<<20 + 1))}, sandbox.KindInvalidParams, ""},
		{"env name", "true", sandbox.ExecOptions{Env: map[string]string{"A-B": ""}}, sandbox.KindInvalidParams, ""},
		{"env name", "true", sandbox.ExecOptions{Env: map[string]string{"": ""}}, sandbox.KindInvalidParams, ""},
		{"env name", "true", sandbox.ExecOptions{Env: map[string]string{"1A": ""}}, sandbox.KindInvalidParams, ""},
		{"env name", "true", sandbox.ExecOptions{Env: map[string]string{"A=B": ""}}, sandbox.KindInvalidParams, ""},
		{"env value", "true", sandbox.ExecOptions{Env: map[string]string{"A": "\x00"}}, sandbox.KindInvalidParams, ""},
		{"command too long", ": " + big, sandbox.ExecOptions{}, sandbox.KindArgumentTooLong, ""},
		{"env too long", "true", sandbox.ExecOptions{Env: map[string]string{"A": big}}, sandbox.KindArgumentTooLong, ""},
		{"cwd", "true", sandbox.ExecOptions{Cwd: "missing"}, sandbox.KindNotFound, "missing"},
		{"cwd", "true", sandbox.ExecOptions{Cwd: "file"}, sandbox.KindNotDirectory, "file"},
		{"cwd", "true", sandbox.ExecOptions{Cwd: "a\x00"}, sandbox.KindInvalidParams, "a\x00"},
		{"cwd", "true", sandbox.ExecOptions{Cwd: "loop1"}, sandbox.KindLoop, "loop1"},
		{"cwd", "true", sandbox.ExecOptions{Cwd: "/proc/self/fd/0"}, sandbox.KindPermission, "/proc/self/fd/0"},
		{"cwd", "true", sandbox.ExecOptions{Cwd: "magic"}, sandbox.KindPermission, "magic"},
	} {
		_, err := s.Exec(bg(), c.command, c.opts)
		if err == nil {
			t.Fatal(c.name)
		}
		want(t, err, c.kind, "exec", c.path)
	}
	many := make(map[string]string)
	for i := range 60 {
		many[fmt.Sprint("V", i)] = big[:len(big)-10]
	}
	_, err := s.Exec(bg(), "true", sandbox.ExecOptions{Env: many})
	want(t, err, sandbox.KindArgumentTooLong, "exec", "")
	if !isRoot() {
		must(0, os.Mkdir(dir+"/closed", 0))
		_, err := s.Exec(bg(), "true", sandbox.ExecOptions{Cwd: "closed"})
		want(t, err, sandbox.KindPermission, "exec", "closed")
	}
	for cwd, at := range map[string]string{"dir": dir + "/dir", "dirlink": dir + "/dir", "": dir, "/": "/", dir + "/dir": dir + "/dir"} {
		if res := sh(t, s, "pwd -P", sandbox.ExecOptions{Cwd: cwd}); string(res.Stdout) != must(filepath.EvalSymlinks(at))+"\n" {
			t.Errorf("%q: %s", cwd, res.Stdout)
		}
	}
}

func TestExecEnvironment(t *testing.T) {
	t.Setenv("A_SECRET_OF_THE_DAEMON", "x")
	kinds(t, func(t *testing.T, s *Sandbox) {
		res := sh(t, s, "exec /usr/bin/env", sandbox.ExecOptions{Env: map[string]string{"TERM": "xterm", "_a1": "b=c\nd"}})
		got := strings.Split(strings.ReplaceAll(string(res.Stdout), "c\nd", "c d"), "\n")
		slices.Sort(got)
		var names []string
		for _, line := range got {
			if name, _, ok := strings.Cut(line, "="); ok && !slices.Contains([]string{"PWD", "OLDPWD", "SHLVL", "_"}, name) {
				names = append(names, line)
			}
		}
		expect := []string{"HOME=" + s.opts.DefaultCwd, "LANG=C.UTF-8", "PATH=" + path, "SHELL=/bin/sh", "TERM=xterm", "USER=" + userName(), "_a1=b=c d"}
		if !slices.Equal(names, expect) {
			t.Errorf("%q", names)
		}
	})
}

func TestExecInheritsNothing(t *testing.T) {
	f := must(os.Open("/dev/null"))
	defer f.Close()
	kinds(t, func(t *testing.T, s *Sandbox) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 10 {
					// ls itself opens the directory as 3.
					res, err := s.Exec(bg(), "exec ls /proc/self/fd", sandbox.ExecOptions{Stdin: []byte("x")})
					if err != nil || string(res.Stdout) != "0\n1\n2\n3\n" {
						t.Errorf("%s %v", res.Stdout, err)
					}
				}
			})
		}
		wg.Wait()
		res := sh(t, s, "grep -E 'Sig(Blk|Ign)' /proc/self/status; ps -o sid= -p $$; echo $$", sandbox.ExecOptions{})
		fields := strings.Fields(string(res.Stdout))
		if len(fields) != 6 || fields[1] != "0000000000000000" || fields[3] != "0000000000000000" || fields[4] != fields[5] {
			t.Errorf("%q", fields)
		}
	})
}

func TestExecOutputBounds(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		for _, limit := range []int64{0, 1, 2, 7, 4096, 99_999, 100_000, 100_001} {
			res := sh(t, s, "seq -w 100000 | head -c 100000; printf err >&2", sandbox.ExecOptions{MaxOutputBytes: sandbox.Some(limit)})
			whole := must(exec.Command("/bin/sh", "-c", "seq -w 100000 | head -c 100000").Output())
			expect, omitted := whole, int64(0)
			if limit < int64(len(whole)) {
				head, tail := limit-limit/2, limit/2
				expect = append(slices.Clone(whole[:head]), whole[int64(len(whole))-tail:]...)
				omitted = int64(len(whole)) - limit
			}
			if !bytes.Equal(res.Stdout, expect) || res.StdoutOmitted != omitted || res.StderrOmitted != max(0, 3-limit) {
				t.Errorf("limit %d: %d bytes, omitted %d and %d", limit, len(res.Stdout), res.StdoutOmitted, res.StderrOmitted)
			}
		}
	})
}

func TestHeadTail(t *testing.T) {
	for limit := range int64(12) {
		for size := range 40 {
			for _, step := range []int{1, 3, 7, 100} {
				b := headTail{limit: limit}
				var all []byte
				for i := range size {
					all = append(all, byte('a'+i%26))
				}
				for rest := all; len(rest) > 0; {
					n := min(step, len(rest))
					b.add(rest[:n])
					rest = rest[n:]
				}
				got, omitted := b.take()
				expect := all
				if int64(size) > limit {
					expect = append(slices.Clone(all[:limit-limit/2]), all[int64(size)-limit/2:]...)
				}
				if !bytes.Equal(got, expect) || omitted != int64(size-len(expect)) {
					t.Fatalf("limit %d, size %d, step %d: %q, %d", limit, size, step, got, omitted)
				}
			}
		}
	}
}

// shapes are ways to leave a process tree. Each leaves processes whose number
// it appends to the file pids.
var shapes = map[string]string{
	"child":         "sleep 300 & echo $! >>pids; wait",
	"group":         "set -m; sleep 300 & echo $! >>pids; wait",
	"session":       "setsid sh -c 'echo $$ >>pids; exec sleep 300' & wait",
	"double fork":   "(sh -c 'echo $$ >>pids; exec sleep 300' &) ; sleep 300",
	"daemon":        "(setsid sh -c '(sh -c \"echo \\$\\$ >>pids; exec sleep 300\" &)' &) ; sleep 300",
	"daemon silent": "(setsid sh -c '(sh -c \"echo \\$\\$ >>pids; exec sleep 300\" &)' </dev/null >/dev/null 2>&1 &) ; sleep 300",
	"nohup":         "nohup sh -c 'echo $$ >>pids; exec sleep 300' >/dev/null 2>&1 & wait",
	"deaf":          "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 300; done' & while :; do sleep 300; done",
	"stopped":       "sh -c 'echo $$ >>pids; kill -STOP $$' & sleep 300",
	"many":          "for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'echo $$ >>pids; exec sleep 300' & done; wait",
}

func TestNothingSurvives(t *testing.T) { testShapes(t, shapes) }

// testShapes ends each command by a timeout and by a cancel.
func testShapes(t *testing.T, shapes map[string]string) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		for name, command := range shapes {
			for _, how := range []string{"timeout", "cancel"} {
				t.Run(name+"/"+how, func(t *testing.T) {
					dir := must(os.MkdirTemp(s.opts.DefaultCwd, "x"))
					testKill(t, s, dir, command, how == "cancel")
				})
			}
		}
	})
}

func testKill(t *testing.T, s *Sandbox, dir, command string, cancelled bool) {
	count := 1
	if strings.Contains(command, "7 8") {
		count = 8
	}
	ctx, cancel := context.WithCancel(bg())
	defer cancel()
	opts := sandbox.ExecOptions{Cwd: dir, Timeout: 400 * time.Millisecond}
	if cancelled {
		opts.Timeout = 0
		go func() {
			for ctx.Err() == nil && len(pidsIn(dir)) < count {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
	}
	res, err := s.Exec(ctx, command, opts)
	if cancelled {
		want(t, err, sandbox.KindCancelled, "exec", "")
	} else if err != nil || res.ExitCode != 124 || res.Reason != sandbox.ReasonTimedOut || res.Signal != "" || res.KillPending || res.Background {
		t.Errorf("%+v %v", res, err)
	}
	if cancelled && len(pidsIn(dir)) < count {
		t.Errorf("only %v started", pidsIn(dir))
	}
	for _, pid := range pidsIn(dir) {
		if running(pid) {
			t.Errorf("%s survived", pid)
		}
	}
}

func pidsIn(dir string) []string {
	b, _ := os.ReadFile(dir + "/pids")
	return strings.Fields(string(b))
}

func TestCloseKillsBackground(t *testing.T) {
	for _, k := range allKinds {
		t.Run(k.name, func(t *testing.T) {
			s := must(New(Options{DefaultCwd: t.TempDir(), Cgroups: k.cgroups, Keeper: k.keeper(t)}))
			dir := s.opts.DefaultCwd
			res := sh(t, s, "(setsid sh -c 'echo $$ >>pids; exec sleep 300' &); yes >/dev/null & echo $! >>pids; sleep 300 & echo $! >>pids; while [ $(wc -l <pids) -lt 3 ]; do sleep 0.01; done", sandbox.ExecOptions{})
			if !res.Background || res.ExitCode != 0 {
				t.Errorf("%+v", res)
			}
			started := make(chan struct{})
			done := make(chan error)
			go func() {
				close(started)
				_, err := s.Exec(bg(), "echo $$ >>pids; sleep 300", sandbox.ExecOptions{})
				done <- err
			}()
			<-started
			eventually(t, "the fourth starts", func() bool { return len(pidsIn(dir)) == 4 })
			for _, pid := range pidsIn(dir) {
				if !running(pid) {
					t.Errorf("%s has ended", pid)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			want(t, <-done, sandbox.KindUnavailable, "exec", "")
			for _, pid := range pidsIn(dir) {
				if running(pid) {
					t.Errorf("%s survived", pid)
				}
			}
		})
	}
}

func TestBackground(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		for _, c := range []struct {
			command, stdout string
			background      bool
		}{
			{"sleep 300 & printf x", "x", true},
			{"sleep 300 >/dev/null 2>&1 & printf x", "x", true},
			{"setsid sleep 300 >/dev/null 2>&1 & printf x", "x", true},
			{"env -i setsid -f sleep 300 >/dev/null 2>&1; printf x", "x", true},
			{"env -i setsid -f sleep 300; printf x", "x", true},
			{"(printf y; sleep 0.01) & wait; printf x", "yx", false},
			{"printf a | cat | cat", "a", false},
		} {
			start := time.Now()
			res := sh(t, s, c.command, sandbox.ExecOptions{})
			if string(res.Stdout) != c.stdout || res.Background != c.background || res.ExitCode != 0 {
				t.Errorf("%q: %+v", c.command, res)
			}
			if took := time.Since(start); took > patience {
				t.Errorf("%q: %v", c.command, took)
			}
		}
		// A flood in the background holds nothing back and loses nothing of
		// the shell's own.
		res := sh(t, s, "head -c 300000 /dev/zero; yes & exit 9", sandbox.ExecOptions{})
		if res.ExitCode != 9 || !res.Background || int64(len(res.Stdout))+res.StdoutOmitted < 300_000 {
			t.Errorf("%d bytes, %d", len(res.Stdout), res.ExitCode)
		}
		// What was left in the background is cleaned up when it has ended.
		res = sh(t, s, "mkfifo gate; (read x <gate) >/dev/null 2>&1 &", sandbox.ExecOptions{})
		if !res.Background {
			t.Errorf("%+v", res)
		}
		before := s.leftCount()
		must(0, os.WriteFile(s.opts.DefaultCwd+"/gate", []byte("x\n"), 0))
		eventually(t, "the tree is released", func() bool { s.tidyLeft(); return s.leftCount() < before })
	})
}

func (s *Sandbox) leftCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.left)
}

func TestNoOutputIsLost(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 25 {
					res, err := s.Exec(bg(), "head -c 70000 /dev/zero; printf end; printf err >&2; sleep 300 & exit", sandbox.ExecOptions{})
					if err != nil || len(res.Stdout) != 70_003 || !bytes.HasSuffix(res.Stdout, []byte("end")) || string(res.Stderr) != "err" {
						t.Errorf("%d bytes, %q %v", len(res.Stdout), res.Stderr, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestTimeoutKeepsOutput(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		res := sh(t, s, "trap 'printf bye; exit 7' TERM; printf out; printf err >&2; sleep 300 & wait", sandbox.ExecOptions{Timeout: 3 * time.Second, KillGrace: sandbox.Some(10 * time.Second)})
		if string(res.Stdout) != "outbye" || string(res.Stderr) != "err" || res.ExitCode != 124 || res.Reason != sandbox.ReasonTimedOut {
			t.Errorf("%+v %s", res, res.Stdout)
		}
		if res.Duration > 3*time.Second+patience || res.Duration < 3*time.Second {
			t.Error(res.Duration)
		}
		start := time.Now()
		res = sh(t, s, "yes", sandbox.ExecOptions{Timeout: 2 * time.Second, KillGrace: sandbox.Some(time.Duration(0))})
		if res.ExitCode != 124 || len(res.Stdout) == 0 {
			t.Errorf("%d %d", res.ExitCode, len(res.Stdout))
		}
		if took := time.Since(start); took > patience {
			t.Error(took)
		}
	})
}

func TestCancelBeforeStart(t *testing.T) {
	s := open(t, Options{})
	ctx, cancel := context.WithCancel(bg())
	cancel()
	_, err := s.Exec(ctx, "touch ran", sandbox.ExecOptions{})
	want(t, err, sandbox.KindCancelled, "exec", "")
	if _, err := os.Stat(s.opts.DefaultCwd + "/ran"); err == nil {
		t.Error("it ran")
	}
}

// TestOtherChildrenKeepTheirStatus runs children of the test's own beside
// commands that leave orphans: no wait may be taken from them.
func TestOtherChildrenKeepTheirStatus(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 20 {
					cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("exit %d", n+1))
					cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: i%2 == 0}
					if cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != n+1 {
						t.Errorf("lost: %v", cmd.ProcessState)
					}
					res, err := s.Exec(bg(), fmt.Sprintf("(setsid true &); (true &); exit %d", n+1), sandbox.ExecOptions{})
					if err != nil || res.ExitCode != n+1 {
						t.Errorf("%+v %v", res, err)
					}
				}
			})
		}
		wg.Wait()
		eventually(t, "orphans are reaped", func() bool { return zombies() == 0 })
	})
}

func zombies() (n int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range dirs {
		b, _ := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[0] == "Z" && f[1] == fmt.Sprint(os.Getpid()) {
			n++
		}
	}
	return n
}

func BenchmarkExecTrue(b *testing.B) {
	b.Run("os/exec", func(b *testing.B) {
		for b.Loop() {
			exec.Command("/bin/sh", "-c", "true").Output()
		}
	})
	for _, k := range allKinds {
		b.Run("local "+k.name, func(b *testing.B) {
			s := must(New(Options{DefaultCwd: b.TempDir(), Cgroups: k.cgroups, Keeper: k.keeper(b)}))
			defer s.Close()
			for b.Loop() {
				must(s.Exec(bg(), "true", sandbox.ExecOptions{}))
			}
		})
	}
}

func BenchmarkWriteFile(b *testing.B) {
	s := must(New(Options{DefaultCwd: b.TempDir()}))
	defer s.Close()
	for b.Loop() {
		must(s.WriteFile(bg(), "f", []byte("content"), sandbox.WriteOptions{}))
	}
}

// TestOutputGrowsOnlyAsAllowed: what Grow refuses is counted as omitted, and
// the command goes on.
func TestOutputGrowsOnlyAsAllowed(t *testing.T) {
	for _, budget := range []int{0, 1, 5, 8, 11, 100} {
		left := budget
		b := headTail{limit: 16, grow: func(n int) bool {
			if n > left {
				return false
			}
			left -= n
			return true
		}}
		var all []byte
		for i := range 40 {
			piece := []byte{byte('a' + i%26)}
			all = append(all, piece...)
			b.add(piece)
		}
		got, omitted := b.take()
		if len(got) > budget || int64(len(got))+omitted != 40 || len(got) < min(budget, 16) {
			t.Errorf("budget %d: kept %q, %d omitted", budget, got, omitted)
		}
		if head := min(len(got), 8); string(got[:head]) != string(all[:head]) {
			t.Errorf("budget %d: head %q", budget, got)
		}
		if tail := len(got) - min(len(got), 8); string(got[len(got)-tail:]) != string(all[len(all)-tail:]) {
			t.Errorf("budget %d: tail %q", budget, got)
		}
	}
}

func TestExecAsksBeforeItKeepsOutput(t *testing.T) {
	s := open(t, Options{DefaultCwd: t.TempDir()})
	var asked atomic.Int64
	res := must(s.Exec(bg(), "head -c 100000 /dev/zero; echo end >&2", sandbox.ExecOptions{Grow: func(n int) bool {
		return asked.Add(int64(n)) <= 5000
	}}))
	kept := int64(len(res.Stdout) + len(res.Stderr))
	if kept > 5000 || kept+res.StdoutOmitted+res.StderrOmitted != 100004 || res.ExitCode != 0 {
		t.Errorf("kept %d, omitted %d and %d, exit %d", kept, res.StdoutOmitted, res.StderrOmitted, res.ExitCode)
	}
}
