//go:build linux

package local

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/controld/controld/sandbox"
	"golang.org/x/sys/unix"
)

// keptVictimEnv makes the test program a sandbox's process that has a keeper
// and is to be killed.
const keptVictimEnv = "LOCAL_TEST_KEPT_VICTIM"

// unmarked are ways out of a tree for what gives even its mark away. Only who
// has the keeper for an ancestor can be sure of those.
var unmarked = map[string]string{
	"unmarked":         "(ulimit -w 5 2>/dev/null || ulimit -x 5; exec env -i setsid sh -c 'echo $$ >>pids; exec sleep 300') & wait",
	"unmarked orphan":  "(ulimit -w 5 2>/dev/null || ulimit -x 5; env -i setsid -f sh -c 'echo $$ >>pids; exec sleep 300'); sleep 300",
	"unmarked and out": "(ulimit -w 5 2>/dev/null || ulimit -x 5; env -i setsid -f sh -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 300; done') >/dev/null 2>&1; exit 0",
}

// allShapes returns every way to leave a tree, in order.
func allShapes() (names, commands []string) {
	all := maps.Clone(shapes)
	maps.Copy(all, bare)
	maps.Copy(all, unmarked)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		names, commands = append(names, name), append(commands, all[name])
	}
	return names, commands
}

// keptVictim runs a command of each shape in a directory of its own, named by
// its place in the list, and waits for its end.
func keptVictim(dir string) {
	s := must(New(Options{
		DefaultCwd: dir,
		StateDir:   filepath.Join(dir, "state"),
		Cgroups:    Cgroups(os.Getenv("LOCAL_TEST_CGROUPS")),
		Keeper:     newKeeper(),
	}))
	_, commands := allShapes()
	for i, command := range commands {
		cwd := filepath.Join(dir, strconv.Itoa(i))
		must(0, os.Mkdir(cwd, 0o755))
		go s.Exec(bg(), command, sandbox.ExecOptions{Cwd: cwd})
	}
	io.Copy(io.Discard, os.Stdin)
}

// TestKeeperOutlivesTheKilled: when the process is killed that runs commands of
// every shape, nothing of them is left soon after, and no other process had to
// start for that.
func TestKeeperOutlivesTheKilled(t *testing.T) {
	names, commands := allShapes()
	for _, c := range []Cgroups{CgroupsAuto, CgroupsOff} {
		t.Run(string(c), func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(must(os.Executable()))
			cmd.Env = append(os.Environ(), keptVictimEnv+"="+dir, "LOCAL_TEST_CGROUPS="+string(c))
			cmd.Stderr = os.Stderr
			stdin := must(cmd.StdinPipe())
			defer stdin.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
			var pids []string
			for i, name := range names {
				count := 1 + 7*strings.Count(commands[i], "7 8")
				at := filepath.Join(dir, strconv.Itoa(i))
				eventually(t, name+" starts", func() bool { return len(pidsIn(at)) == count })
				for _, pid := range pidsIn(at) {
					if !running(pid) {
						t.Errorf("%s: %s has ended", name, pid)
					}
					pids = append(pids, pid)
				}
			}
			cmd.Process.Kill()
			cmd.Wait()
			eventually(t, "they end", func() bool { return !slices.ContainsFunc(pids, running) })
		})
	}
}

// TestKeeperIsKilledByACommand: that command has its own result all the same,
// and what runs beside it, and comes after it, does not notice.
func TestKeeperIsKilledByACommand(t *testing.T) {
	s := open(t, Options{Cgroups: CgroupsOff, Keeper: kind{kept: true}.keeper(t)})
	beside := make(chan sandbox.ShellResult)
	go func() {
		beside <- must(s.Exec(bg(), "echo $$ >>pids; while [ ! -e go ]; do sleep 0.01; done; cat; exit 4", sandbox.ExecOptions{Stdin: []byte("in")}))
	}()
	eventually(t, "it starts", func() bool { return len(pidsIn(s.opts.DefaultCwd)) == 1 })
	for range 3 {
		res := sh(t, s, "kill -KILL $PPID; seq 100000 | tail -1; exit 3", sandbox.ExecOptions{})
		if res.ExitCode != 3 || string(res.Stdout) != "100000\n" || res.Background {
			t.Errorf("%+v", res)
		}
	}
	put(t, s.opts.DefaultCwd+"/go", "")
	if res := <-beside; res.ExitCode != 4 || string(res.Stdout) != "in" {
		t.Errorf("%+v", res)
	}
}

// TestKeeperIsKilledOverAStart: whether the command ran is not known, and it
// runs once at most.
func TestKeeperIsKilledOverAStart(t *testing.T) {
	s := open(t, Options{Cgroups: CgroupsOff, Keeper: kind{kept: true}.keeper(t)})
	for _, cwd := range []string{"", "/"} {
		pid := must(strconv.Atoi(strings.TrimSpace(string(sh(t, s, "echo $PPID", sandbox.ExecOptions{}).Stdout))))
		must(0, syscall.Kill(pid, syscall.SIGSTOP))
		eventually(t, "it stops", func() bool {
			_, rest, _ := strings.Cut(get(t, fmt.Sprintf("/proc/%d/stat", pid)), ") ")
			return strings.HasPrefix(rest, "T")
		})
		failed := make(chan error)
		go func() {
			_, err := s.Exec(bg(), "echo x >>"+s.opts.DefaultCwd+"/ran", sandbox.ExecOptions{Cwd: cwd})
			failed <- err
		}()
		eventually(t, "it is asked", func() bool { return unread(t) })
		must(0, syscall.Kill(pid, syscall.SIGKILL))
		err := <-failed
		want(t, err, sandbox.KindInternal, "exec", "")
		if e := sandbox.AsError("exec", "", err); e.Outcome != sandbox.OutcomeUnknown {
			t.Errorf("outcome %q", e.Outcome)
		}
	}
	if _, err := os.Stat(s.opts.DefaultCwd + "/ran"); !os.IsNotExist(err) {
		t.Error("a command that was never read ran:", err)
	}
}

// unread tells whether something that this process wrote to a socket has not
// been read: there is none but the keeper's.
func unread(t *testing.T) bool {
	t.Helper()
	for _, e := range must(os.ReadDir("/proc/self/fd")) {
		fd, _ := strconv.Atoi(e.Name())
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, "socket:") {
			if n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil && n > 0 {
				return true
			}
		}
	}
	return false
}
