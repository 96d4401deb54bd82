package sandboxtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/controld/controld/sandbox"
)

func execChecks() []check {
	type want struct {
		out, err string
		code     int
	}
	simple := func(command string, w want) func(e *env) {
		return func(e *env) {
			res := e.exec(command, sandbox.ExecOptions{})
			e.equal(string(res.Stdout), w.out)
			e.equal(string(res.Stderr), w.err)
			e.equal(res.ExitCode, w.code)
			e.equal(res.Reason, sandbox.ReasonExited)
			e.equal(res.Signal, "")
			e.equal(res.Background, false)
			e.equal(res.KillPending, false)
			if res.Duration <= 0 || res.Duration > patience {
				e.Fatalf("duration %v", res.Duration)
			}
		}
	}
	return []check{
		{"output and code", simple("printf hi; printf er >&2; exit 3", want{"hi", "er", 3})},
		{"nothing", simple("", want{})},
		{"exit 124 of its own is no timeout", simple("exit 124", want{code: 124})},
		{"exit 255", simple("exit 255", want{code: 255})},
		{"NUL in output", simple(`printf 'a\000b'`, want{out: "a\x00b"})},
		{"quotes", simple(`printf %s "it's \"x\""`, want{out: `it's "x"`})},
		{"several lines", simple("a=1\nprintf $a\n", want{out: "1"})},
		{"command not found", func(e *env) {
			res := e.exec("no-such-command-here", sandbox.ExecOptions{})
			e.equal(res.ExitCode, 127)
			e.equal(res.Reason, sandbox.ReasonExited)
		}},
		{"it is sh, not bash", func(e *env) {
			res := e.exec(`printf %s "$0"; [ -z "$BASH_VERSION" ] || printf bash`, sandbox.ExecOptions{})
			e.equal(string(res.Stdout), "/bin/sh")
		}},
		{"binary output", func(e *env) {
			e.write("f", string(allBytes()))
			res := e.exec("cat f", sandbox.ExecOptions{})
			e.equal(string(res.Stdout), string(allBytes()))
		}},
		{"killed by a signal", func(e *env) {
			for sig, n := range map[string]int{"KILL": 9, "TERM": 15, "HUP": 1, "USR1": 10} {
				res := e.exec("kill -"+sig+" $$", sandbox.ExecOptions{})
				e.equal(res.ExitCode, 128+n)
				e.equal(res.Signal, sig)
				e.equal(res.Reason, sandbox.ReasonSignaled)
			}
		}},
		{"cwd", func(e *env) {
			e.sh("mkdir d")
			res, err := e.b.Exec(e.ctx, "pwd -P", sandbox.ExecOptions{Cwd: e.p("d")})
			e.ok(err)
			if !strings.HasSuffix(string(res.Stdout), "/"+e.p("d")+"\n") {
				e.Fatalf("pwd %q", res.Stdout)
			}
		}},
		{"cwd of the sandbox by default", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			res, err := e.b.Exec(e.ctx, "pwd; printf %s \"$HOME\"", sandbox.ExecOptions{})
			e.ok(err)
			e.equal(string(res.Stdout), info.Cwd+"\n"+info.Cwd)
		}},
		{"cwd that cannot be", func(e *env) {
			e.write("f", "")
			e.sh("ln -s b a; ln -s a b; ln -s /proc/self/fd/0 m")
			for name, want := range map[string]sandbox.Kind{
				"none": sandbox.KindNotFound, "f": sandbox.KindNotDirectory, "f/x": sandbox.KindNotDirectory, "a": sandbox.KindLoop,
				strings.Repeat("n", 256): sandbox.KindNameTooLong, "a\x00b": sandbox.KindInvalidParams,
			} {
				_, err := e.b.Exec(e.ctx, "true", sandbox.ExecOptions{Cwd: e.p(name)})
				e.kind(err, want)
			}
			for _, path := range []string{"/proc/self/fd/0", e.p("m"), "/proc/self/cwd"} {
				_, err := e.b.Exec(e.ctx, "true", sandbox.ExecOptions{Cwd: path})
				e.kindIn(err, sandbox.KindPermission)
			}
		}},
		{"environment is clean", func(e *env) {
			res := e.exec("env | cut -d= -f1 | sort | tr '\\n' ' '", sandbox.ExecOptions{})
			for _, name := range strings.Fields(string(res.Stdout)) {
				switch name {
				case "PATH", "HOME", "LANG", "TERM", "USER", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "LOGNAME":
				default:
					e.Errorf("variable %s", name)
				}
			}
			e.equal(e.sh("printf %s \"$LANG $TERM $SHELL\""), "C.UTF-8 dumb /bin/sh")
			e.equal(len(strings.Split(e.sh("printf %s \"$PATH\""), ":")), 6)
		}},
		{"environment of the caller", func(e *env) {
			res := e.exec(`printf '%s|%s|%s' "$A" "$b_1" "$LANG"`, sandbox.ExecOptions{Env: map[string]string{"A": "x y'\"$\n", "b_1": "", "LANG": "C"}})
			e.equal(string(res.Stdout), "x y'\"$\n||C")
		}},
		{"environment names that cannot be", func(e *env) {
			for _, name := range []string{"", "1A", "A-B", "A=B", "ä", "A B", "A\x00"} {
				_, err := e.b.Exec(e.ctx, "true", sandbox.ExecOptions{Env: map[string]string{name: "x"}})
				e.kind(err, sandbox.KindInvalidParams)
			}
			_, err := e.b.Exec(e.ctx, "true", sandbox.ExecOptions{Env: map[string]string{"A": "x\x00y"}})
			e.kind(err, sandbox.KindInvalidParams)
		}},
		{"a command with a NUL", func(e *env) {
			_, err := e.b.Exec(e.ctx, "true\x00false", sandbox.ExecOptions{})
			e.kind(err, sandbox.KindInvalidParams)
		}},
		{"stdin", func(e *env) {
			res := e.exec("cat", sandbox.ExecOptions{Stdin: allBytes()})
			e.equal(string(res.Stdout), string(allBytes()))
		}},
		{"stdin is empty by default", simple("cat", want{})},
		{"large stdin", func(e *env) {
			res := e.exec("wc -c | tr -d ' '", sandbox.ExecOptions{Stdin: make([]byte, 4<<20)})
			e.equal(string(res.Stdout), "4194304\n")
		}},
		{"stdin that nobody reads", func(e *env) {
			res := e.exec("exec true", sandbox.ExecOptions{Stdin: make([]byte, 4<<20)})
			e.equal(res.ExitCode, 0)
		}},
		{"no terminal", simple("[ -t 0 ] || [ -t 1 ] || printf none; (: < /dev/tty) 2>/dev/null || printf none", want{out: "nonenone"})},
		{"only its own descriptors", func(e *env) {
			e.equal(e.sh("ls /proc/self/fd | tr '\\n' ' '"), "0 1 2 3 ")
		}},
		{"no signals blocked or ignored", func(e *env) {
			e.equal(e.sh("for s in HUP INT QUIT USR1 USR2 PIPE ALRM TERM XCPU VTALRM PROF; do sh -c 'kill -$0 $$; echo lives on: $0' $s 2>/dev/null; done; :"), "")
			// Where the system tells, of all signals.
			e.equal(e.sh("grep -E 'SigBlk|SigIgn' /proc/self/status | cut -f2 | tr -d '0\\n'; :"), "")
		}},
		{"no core files", func(e *env) { e.equal(e.sh("ulimit -c"), "0\n") }},
		{"a fast command's output", func(e *env) {
			for i := range 100 {
				e.equal(string(e.exec(fmt.Sprintf("echo %d", i), sandbox.ExecOptions{}).Stdout), fmt.Sprintf("%d\n", i))
			}
		}},
		{"2,000,000 lines, bounded", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			res := e.exec("seq 1 2000000", sandbox.ExecOptions{})
			const total = 14888896
			most := info.Limits.MaxOutputBytes
			e.equal(res.StdoutOmitted, total-most)
			e.equal(int64(len(res.Stdout)), most)
			if !strings.HasPrefix(string(res.Stdout), "1\n2\n") || !strings.HasSuffix(string(res.Stdout), "1999999\n2000000\n") {
				e.Fatal("head or tail is wrong")
			}
		}},
		{"head and tail", func(e *env) {
			res := e.exec("printf 0123456789; printf abcdef >&2", sandbox.ExecOptions{MaxOutputBytes: sandbox.Some(int64(4))})
			e.equal(string(res.Stdout), "0189")
			e.equal(res.StdoutOmitted, int64(6))
			e.equal(string(res.Stderr), "abef")
			e.equal(res.StderrOmitted, int64(2))
		}},
		{"output that just fits", func(e *env) {
			res := e.exec("printf 0123", sandbox.ExecOptions{MaxOutputBytes: sandbox.Some(int64(4))})
			e.equal(string(res.Stdout), "0123")
			e.equal(res.StdoutOmitted, int64(0))
		}},
		{"no output wanted", func(e *env) {
			res := e.exec("printf 0123", sandbox.ExecOptions{MaxOutputBytes: sandbox.Some(int64(0))})
			e.equal(len(res.Stdout), 0)
			e.equal(res.StdoutOmitted, int64(4))
		}},
		{"more output than allowed is refused", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			_, err = e.b.Exec(e.ctx, "true", sandbox.ExecOptions{MaxOutputBytes: sandbox.Some(info.Limits.MaxOutputBytes + 1)})
			e.kind(err, sandbox.KindInvalidParams)
		}},
		{"too long a command", func(e *env) {
			_, err := e.b.Exec(e.ctx, ": "+strings.Repeat("x", 200<<10), sandbox.ExecOptions{})
			e.kind(err, sandbox.KindArgumentTooLong)
		}},
		{"too long an environment", func(e *env) {
			_, err := e.b.Exec(e.ctx, "true", sandbox.ExecOptions{Env: map[string]string{"A": strings.Repeat("x", 200<<10)}})
			e.kind(err, sandbox.KindArgumentTooLong)
		}},
		{"timeout", func(e *env) {
			start := time.Now()
			res := e.exec("echo before; sleep 50", sandbox.ExecOptions{Timeout: 2 * time.Second})
			e.equal(res.ExitCode, sandbox.ExitTimedOut)
			e.equal(res.Reason, sandbox.ReasonTimedOut)
			e.equal(res.Signal, "")
			e.equal(string(res.Stdout), "before\n")
			if d := time.Since(start); d < 200*time.Millisecond || d > 20*time.Second {
				e.Fatalf("took %v", d)
			}
		}},
		{"timeout that is not reached", func(e *env) {
			e.equal(e.exec("exit 5", sandbox.ExecOptions{Timeout: 50 * time.Second}).ExitCode, 5)
		}},
		{"a timeout above a week is refused", func(e *env) {
			_, err := e.b.Exec(e.ctx, "true", sandbox.ExecOptions{Timeout: 604801 * time.Second})
			e.kind(err, sandbox.KindInvalidParams)
		}},
		{"a timeout is TERM first", func(e *env) {
			res := e.exec("trap 'echo term; exit 0' TERM; sleep 50 & wait", sandbox.ExecOptions{
				Timeout: 2 * time.Second, KillGrace: sandbox.Some(20 * time.Second)})
			e.equal(string(res.Stdout), "term\n")
			e.equal(res.Reason, sandbox.ReasonTimedOut)
		}},
		{"a timeout ends who ignores TERM", func(e *env) {
			res := e.exec("trap '' TERM; while :; do sleep 0.05; done", sandbox.ExecOptions{Timeout: time.Second})
			e.equal(res.Reason, sandbox.ReasonTimedOut)
		}},
		{"a timeout under a flood of output", func(e *env) {
			res := e.exec("yes", sandbox.ExecOptions{Timeout: 2 * time.Second, MaxOutputBytes: sandbox.Some(int64(1000))})
			e.equal(res.Reason, sandbox.ReasonTimedOut)
			e.equal(len(res.Stdout), 1000)
			if res.StdoutOmitted <= 0 {
				e.Fatal("nothing omitted")
			}
		}},
		{"a background child does not hold the answer", func(e *env) {
			start := time.Now()
			res := e.exec("sleep 50 & echo hi", sandbox.ExecOptions{})
			e.equal(string(res.Stdout), "hi\n")
			e.equal(res.Background, true)
			e.equal(res.Reason, sandbox.ReasonExited)
			if d := time.Since(start); d > 20*time.Second {
				e.Fatalf("took %v", d)
			}
		}},
		{"a background child with its output elsewhere", func(e *env) {
			res := e.exec("sleep 50 >/dev/null 2>&1 & echo hi", sandbox.ExecOptions{})
			e.equal(string(res.Stdout), "hi\n")
			e.equal(res.Background, true)
		}},
		{"a background child lives on", func(e *env) {
			e.exec("(sleep 0.3; echo later > f) & echo hi", sandbox.ExecOptions{})
			e.await("f")
		}},
		{"a shell that ended before its timeout did not time out", func(e *env) {
			res := e.exec("sleep 50 &", sandbox.ExecOptions{Timeout: 30 * time.Second})
			e.equal(res.Reason, sandbox.ReasonExited)
			e.equal(res.ExitCode, 0)
		}},
	}
}

// await waits until a file of the check exists: a process of its own made it.
func (e *env) await(name string) {
	e.Helper()
	for !e.exists(name) {
		select {
		case <-e.ctx.Done():
			e.Fatalf("%s never came", name)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
