package sandboxtest

import (
	"context"
	"strings"
	"time"

	"github.com/controld/controld/sandbox"
)

// shapes are the ways in which processes try to survive their command. Each
// writes the pid of its survivor to a file, then lives for a minute.
func shapes() map[string]string {
	const stay = "echo $$ >> pids; exec sleep 60"
	sh := func(prefix string) string { return prefix + " sh -c '" + stay + "'" }
	return map[string]string{
		"plain":            sh("") + " & wait",
		"background":       sh("") + " & sleep 60",
		"nohup":            sh("nohup") + " >/dev/null 2>&1 & sleep 60",
		"setsid":           sh("setsid") + " & sleep 60",
		"double fork":      "( " + sh("") + " & ) & sleep 60",
		"setsid and fork":  "setsid sh -c '( sh -c \"echo \\$\\$ >> pids; exec sleep 60\" & ) &' & sleep 60",
		"ignoring signals": "trap '' TERM HUP INT; " + sh("") + " & sleep 60",
		"closed output":    sh("setsid") + " >/dev/null 2>&1 </dev/null & sleep 60",
	}
}

// dead waits until none of the pids in the file lives.
func (e *env) dead() {
	e.Helper()
	e.exec(`for i in $(seq 1 500); do
		alive=; for p in $(cat pids); do
			[ -d /proc/$p ] && ! grep -q '^State:.Z' /proc/$p/status 2>/dev/null && alive="$alive $p"
		done
		[ -z "$alive" ] && exit 0
		sleep 0.01
	done; exit 1`, sandbox.ExecOptions{})
}

// gone checks that all pids in the file are gone by now, without waiting.
func (e *env) gone() {
	e.Helper()
	res := e.exec(`for p in $(cat pids); do [ -d /proc/$p ] && grep -H State /proc/$p/status; done; exit 0`, sandbox.ExecOptions{})
	if out := string(res.Stdout); out != "" && !strings.Contains(out, "Z (zombie)") {
		e.Fatalf("survivors: %s", out)
	}
}

func treeChecks() []check {
	var checks []check
	for name, command := range shapes() {
		checks = append(checks,
			check{"timeout ends " + name, func(e *env) {
				res := e.exec(command, sandbox.ExecOptions{Timeout: 500 * time.Millisecond})
				e.equal(res.Reason, sandbox.ReasonTimedOut)
				if res.KillPending { // the machine is busy
					e.dead()
				}
				e.gone()
			}},
			check{"cancel ends " + name, func(e *env) {
				ctx, cancel := context.WithCancel(e.ctx)
				failed := make(chan error, 1)
				go func() {
					_, err := e.b.Exec(ctx, command, sandbox.ExecOptions{Cwd: e.dir})
					failed <- err
				}()
				e.await("pids")
				cancel()
				e.kind(<-failed, sandbox.KindCancelled)
				e.dead() // a busy machine may take longer than the answer waits
			}})
	}
	return append(checks,
		check{"exit leaves no zombie", func(e *env) {
			e.exec("sh -c 'echo $$ > pids'; (sh -c 'echo $$ >> pids' &)", sandbox.ExecOptions{})
			e.dead()
		}},
		check{"two commands do not meet", func(e *env) {
			slow := make(chan sandbox.ShellResult, 1)
			go func() {
				res, _ := e.b.Exec(e.ctx, "echo $$ > pids; sleep 1; echo whole", sandbox.ExecOptions{Cwd: e.dir})
				slow <- res
			}()
			e.await("pids")
			e.exec("sleep 50 & sleep 50", sandbox.ExecOptions{Timeout: 100 * time.Millisecond})
			e.equal(string((<-slow).Stdout), "whole\n")
		}})
}
