//go:build linux

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// freezer makes a frozen cgroup of version 1: what enters it stops, and does
// not even die until it is thawed. thaw lets it.
func freezer(t *testing.T) (procs string, thaw func()) {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/freezer", fmt.Sprintf("controld-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("needs the freezer of cgroup version 1: %v", err)
	}
	set := func(state string) {
		if err := os.WriteFile(filepath.Join(dir, "freezer.state"), []byte(state), 0o644); err != nil {
			t.Error(err)
		}
	}
	set("FROZEN")
	t.Cleanup(func() {
		set("THAWED")
		eventually(t, "the freezer is empty", func() bool { return os.Remove(dir) == nil })
	})
	return filepath.Join(dir, "cgroup.procs"), func() { set("THAWED") }
}

// TestKillPending: what the kernel does not let die in time is said to live,
// and killed on.
func TestKillPending(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		procs, thaw := freezer(t)
		s.killPatience = killPatience
		res := sh(t, s, "echo $$ >pids; echo $$ >"+procs+"; sleep 300", sandbox.ExecOptions{Timeout: 3 * time.Second})
		if res.ExitCode != sandbox.ExitTimedOut || res.Reason != sandbox.ReasonTimedOut || !res.KillPending || !res.Background {
			t.Errorf("%+v", res)
		}
		pids := pidsIn(s.opts.DefaultCwd)
		if len(pids) != 1 || !running(pids[0]) {
			t.Fatalf("%v, not running", pids)
		}
		if res := sh(t, s, "printf on", sandbox.ExecOptions{}); string(res.Stdout) != "on" || res.Background {
			t.Errorf("the next: %+v", res)
		}
		thaw()
		eventually(t, "it dies", func() bool { return !running(pids[0]) })
	})
}
