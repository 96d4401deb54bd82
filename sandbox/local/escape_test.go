//go:build linux

package local

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// bare are ways to leave a process tree with nothing inherited: neither
// session nor parent nor environment.
var bare = map[string]string{
	"bare session":  "env -i setsid sh -c 'echo $$ >>pids; exec sleep 300' & wait",
	"bare fork":     "env -i setsid -f sh -c 'echo $$ >>pids; exec sleep 300'; sleep 300",
	"bare silent":   "env -i setsid -f sh -c 'echo $$ >>pids; exec sleep 300' </dev/null >/dev/null 2>&1; sleep 300",
	"bare daemon":   "env -i setsid sh -c '(env -i setsid -f sh -c \"echo \\$\\$ >>pids; trap \\\"\\\" TERM; while :; do sleep 300; done\" &)' & sleep 300",
	"bare but one":  "env -i A=b setsid -f sh -c 'echo $$ >>pids; exec sleep 300'; sleep 300",
	"bare orphan":   "(env -i setsid -f sh -c 'echo $$ >>pids; exec sleep 300' &); env -i setsid -f sleep 0; sleep 300",
	"bare and deaf": "trap '' TERM; env -i setsid -f sh -c 'echo $$ >>pids; while :; do sleep 300; done'; while :; do sleep 300; done",
}

func TestNothingBareSurvives(t *testing.T) {
	testShapes(t, bare)
}

// TestCloseKillsTheBare leaves detached processes behind finished commands.
func TestCloseKillsTheBare(t *testing.T) {
	for _, k := range allKinds {
		t.Run(k.name, func(t *testing.T) {
			s := must(New(Options{DefaultCwd: t.TempDir(), Cgroups: k.cgroups, Keeper: k.keeper(t)}))
			dir := s.opts.DefaultCwd
			for n := range 3 {
				res := sh(t, s, fmt.Sprintf("env -i setsid -f sh -c 'echo $$ >>pids; exec sleep 300' >/dev/null 2>&1; while [ ! -e pids ] || [ $(wc -l <pids) -lt %d ]; do sleep 0.01; done", n+1), sandbox.ExecOptions{})
				if !res.Background || res.KillPending {
					t.Errorf("%+v", res)
				}
			}
			if res := sh(t, s, "true", sandbox.ExecOptions{}); res.Background {
				t.Error("another command's child is taken for true's own")
			}
			for _, pid := range pidsIn(dir) {
				if !running(pid) {
					t.Errorf("%s has ended", pid)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			for _, pid := range pidsIn(dir) {
				if running(pid) {
					t.Errorf("%s survived", pid)
				}
			}
		})
	}
}

// relay forks, ends the parent and starts a session each millisecond, for 20
// seconds at most. One process of it lives at a time.
const relay = `perl -e 'use POSIX; my $end = time + 20; open(my $f, ">", "going"); while (time < $end) { my $p = fork; exit if $p; exit unless defined $p; setsid; select(undef, undef, undef, 0.001) }' %s`

// bearing lists the living processes with a word in their command lines.
func bearing(word string) (pids []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		line, _ := os.ReadFile(name)
		if pid := filepath.Base(filepath.Dir(name)); slices.Contains(strings.Split(string(line), "\x00"), word) && running(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestRelayIsCaught(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("the relay needs perl")
	}
	kinds(t, func(t *testing.T, s *Sandbox) {
		for n := range 20 {
			dir := must(os.MkdirTemp(s.opts.DefaultCwd, "x"))
			word := fmt.Sprintf("%s-%d-%d", filepath.Base(dir), os.Getpid(), n)
			// It runs from before the timeout on: the limit is long enough.
			res := sh(t, s, fmt.Sprintf(relay, word)+" & wait; sleep 300", sandbox.ExecOptions{Cwd: dir, Timeout: 300 * time.Millisecond})
			if res.ExitCode != 124 {
				t.Errorf("%+v", res)
			}
			if res.KillPending { // then it says so, and goes on killing
				t.Logf("try %d: later", n)
				eventually(t, "the relay is caught", func() bool { return len(bearing(word)) == 0 })
			}
			for range 40 { // it is easily missed
				if pids := bearing(word); len(pids) > 0 {
					t.Fatalf("try %d: %v runs on", n, pids)
				}
			}
		}
	})
}

// TestRelayInTheBackground: it is seen after the shell has ended, and ends
// with the sandbox.
func TestRelayInTheBackground(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("the relay needs perl")
	}
	for _, k := range allKinds {
		t.Run(k.name, func(t *testing.T) {
			s := must(New(Options{DefaultCwd: t.TempDir(), Cgroups: k.cgroups, Keeper: k.keeper(t)}))
			word := fmt.Sprintf("background-%s-%d", k.name, os.Getpid())
			res := sh(t, s, fmt.Sprintf(relay, word)+" >/dev/null 2>&1 & while [ ! -e going ]; do sleep 0.01; done", sandbox.ExecOptions{})
			if !res.Background {
				t.Errorf("%+v", res)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			for range 40 {
				if pids := bearing(word); len(pids) > 0 {
					t.Fatalf("%v runs on", pids)
				}
			}
		})
	}
}

// leaveCgroup moves the shell to the cgroup above those of the sandbox.
const leaveCgroup = `m=$(awk '/ - cgroup2 /{print $5; exit}' /proc/self/mountinfo); d=$(sed -n 's/^0:://p' /proc/self/cgroup); echo $$ >"$m$(dirname $(dirname $d))/cgroup.procs" || exit 9; `

// TestLeavingTheCgroup: what moves out is killed with its tree, in bounded
// time.
func TestLeavingTheCgroup(t *testing.T) {
	if !isRoot() {
		t.Skip("only root may move processes between cgroups")
	}
	s := open(t, Options{})
	if s.forest.Kind() != "cgroup" {
		t.Skip("there are no cgroups here")
	}
	for name, command := range map[string]string{
		"shell":   leaveCgroup + "echo $$ >>pids; sleep 300",
		"deaf":    leaveCgroup + "trap '' TERM; echo $$ >>pids; while :; do sleep 300; done",
		"session": "setsid sh -c '" + strings.ReplaceAll(leaveCgroup, "'", `'\''`) + "echo $$ >>pids; exec sleep 300' & wait",
		"bare":    leaveCgroup + "env -i setsid -f sh -c 'echo $$ >>pids; exec sleep 300'; sleep 300",
	} {
		for _, how := range []string{"timeout", "cancel"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				dir := must(os.MkdirTemp(s.opts.DefaultCwd, "x"))
				begun := time.Now()
				testKill(t, s, dir, command, how == "cancel")
				if took := time.Since(begun); took > patience/2 {
					t.Error(took)
				}
			})
		}
	}
}

// TestCloseKillsWhatLeftTheCgroup closes over a running command and over one
// that has ended, both with everything moved out.
func TestCloseKillsWhatLeftTheCgroup(t *testing.T) {
	if !isRoot() {
		t.Skip("only root may move processes between cgroups")
	}
	s := must(New(Options{DefaultCwd: t.TempDir()}))
	defer s.Close()
	if s.forest.Kind() != "cgroup" {
		t.Skip("there are no cgroups here")
	}
	dir := s.opts.DefaultCwd
	sh(t, s, leaveCgroup+"env -i setsid -f sh -c 'echo $$ >>pids; exec sleep 300' >/dev/null 2>&1; while [ ! -s pids ]; do sleep 0.01; done", sandbox.ExecOptions{})
	done := make(chan error)
	go func() {
		_, err := s.Exec(bg(), leaveCgroup+"echo $$ >>pids; sleep 300", sandbox.ExecOptions{})
		done <- err
	}()
	eventually(t, "the second starts", func() bool { return len(pidsIn(dir)) == 2 })
	begun := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > patience/2 {
		t.Error(took)
	}
	want(t, <-done, sandbox.KindUnavailable, "exec", "")
	for _, pid := range pidsIn(dir) {
		if running(pid) {
			t.Errorf("%s survived", pid)
		}
	}
}

// TestMarkIsAllThatChildrenSee: a command has the mark and nothing else of it.
func TestMarkIsAllThatChildrenSee(t *testing.T) {
	before := must(os.ReadFile("/proc/self/limits"))
	kinds(t, func(t *testing.T, s *Sandbox) {
		var seen [][]byte
		for range 2 {
			res := sh(t, s, "read line; cat /proc/self/limits", sandbox.ExecOptions{Stdin: []byte("marked by now\n")})
			for line := range bytes.Lines(res.Stdout) {
				if bytes.HasPrefix(line, []byte("Max file locks")) {
					seen = append(seen, line)
				} else if !bytes.Contains(before, line) && !bytes.HasPrefix(line, []byte("Max core")) && !bytes.HasPrefix(line, []byte("Max open files")) {
					t.Errorf("%s", line)
				}
			}
		}
		if len(seen) != 2 || bytes.Equal(seen[0], seen[1]) {
			t.Errorf("%q", seen)
		}
		if after := must(os.ReadFile("/proc/self/limits")); bytes.Contains(after, seen[0]) || bytes.Contains(after, seen[1]) {
			t.Errorf("this process kept a mark: %s", after)
		}
	})
}

// TestCloseCutsTheGrace: a command that may take an hour to end holds nothing
// up.
func TestCloseCutsTheGrace(t *testing.T) {
	for _, k := range allKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := must(New(Options{DefaultCwd: t.TempDir(), Cgroups: k.cgroups, Keeper: k.keeper(t)}))
			done := make(chan error)
			go func() {
				_, err := s.Exec(bg(), "trap '' TERM; echo $$ >>pids; while :; do sleep 1; done", sandbox.ExecOptions{KillGrace: sandbox.Some(time.Hour)})
				done <- err
			}()
			eventually(t, "it starts", func() bool { return len(pidsIn(s.opts.DefaultCwd)) == 1 })
			begun := time.Now()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begun); took > patience {
				t.Error(took)
			}
			want(t, <-done, sandbox.KindUnavailable, "exec", "")
			if running(pidsIn(s.opts.DefaultCwd)[0]) {
				t.Error("survived")
			}
		})
	}
}
