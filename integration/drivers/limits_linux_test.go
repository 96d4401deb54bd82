package drivers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/cgroup"
)

// The bounds of a sandbox in these tests, and of the cgroup around it, which
// would hold what a bomb breaks through.
const (
	boxMemory    = 64 << 20
	boxProcesses = 96
	boxCPUs      = 0.5

	outerMemory    = 512 << 20
	outerProcesses = 400
)

// outer makes a cgroup around what a test starts and returns its path.
func outer(t *testing.T) string {
	t.Helper()
	name := "controld-outer-" + uuid.NewString()
	limits := map[string]string{"memory/memory.limit_in_bytes": fmt.Sprint(outerMemory), "pids/pids.max": fmt.Sprint(outerProcesses), "cpu/": ""}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		limits = map[string]string{"/memory.max": fmt.Sprint(outerMemory), "/pids.max": fmt.Sprint(outerProcesses)}
	}
	t.Cleanup(func() { removeOuter(t, name) })
	for path, value := range limits {
		controller, file, _ := strings.Cut(path, "/")
		dir := filepath.Join("/sys/fs/cgroup", controller, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			t.Skipf("no cgroup can be made: %v", err)
		}
		if file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "/" + name
}

// removeOuter removes it below every controller: runtimes make it where it is
// not yet. Sandboxes have left nothing in it.
func removeOuter(t *testing.T, name string) {
	below, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", name))
	for _, dir := range append(below, filepath.Join("/sys/fs/cgroup", name)) {
		if left, _ := filepath.Glob(filepath.Join(dir, "controld-*")); len(left) > 0 {
			t.Errorf("sandboxes left %v", left)
		}
		if err := removeGroups(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// removeGroups removes a cgroup with the empty ones in it. An engine's own
// processes may end a moment later than its containers.
func removeGroups(dir string) error {
	for deadline := time.Now().Add(engineTimeout); ; {
		err := removeEmpty(dir)
		if err == nil || !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

func removeEmpty(dir string) error {
	inner, err := filepath.Glob(filepath.Join(dir, "*/"))
	if err != nil {
		return err
	}
	for _, one := range inner {
		if info, err := os.Stat(one); err == nil && info.IsDir() {
			if err := removeEmpty(one); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}

// TestLimits: P16.6. Memory, processes and processors of a sandbox end where they
// should, the bomb is told why, and its sandbox lives.
func TestLimits(t *testing.T) {
	for name, k := range kinds {
		if k.bounded == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			k.want(t)
			parent := outer(t)
			h := newHostOf(t, k.bounded(t, parent), sandboxhost.Box{Memory: boxMemory, Processes: boxProcesses, CPUs: boxCPUs})
			b, err := h.Backend(t.Context(), "acme", "default")
			if err != nil {
				t.Fatal(err)
			}
			run := func(command string) sandbox.ShellResult {
				t.Helper()
				r, err := b.Exec(t.Context(), command, sandbox.ExecOptions{Timeout: daemonTimeout})
				if err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				return r
			}
			before, err := b.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, bomb := range []string{"dd if=/dev/zero of=/dev/null bs=256M count=1", "sh -c 'dd if=/dev/zero of=/dev/null bs=256M count=1'; exit $?"} {
				if r := run(bomb); r.Reason != sandbox.ReasonOOMKilled || r.ExitCode != 137 {
					t.Errorf("%s: %+v", bomb, r)
				}
			}
			if r := run("exit 137"); r.Reason != sandbox.ReasonExited {
				t.Errorf("an exit: %+v", r)
			}
			if r := run("for i in $(seq 300); do sleep 0.3 & done; wait"); r.ExitCode == 0 || !strings.Contains(string(r.Stderr), "fork") {
				t.Errorf("a fork bomb: %+v", r)
			}
			awaitRoom(t, b)
			awaitThrottled(t, b, parent)
			if r := run("echo on"); string(r.Stdout) != "on\n" {
				t.Errorf("afterwards: %+v", r)
			}
			if after, err := b.Info(t.Context()); err != nil || after.Epoch != before.Epoch {
				t.Errorf("a bomb ended its sandbox: %+v, %v", after, err)
			}
		})
	}
}

// awaitRoom waits until a bomb's last processes have ended.
func awaitRoom(t *testing.T, b sandbox.Backend) {
	t.Helper()
	for deadline := time.Now().Add(daemonTimeout); ; {
		r, err := b.Exec(t.Context(), "true | true", sandbox.ExecOptions{})
		if err == nil && r.ExitCode == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", r, err)
		}
	}
}

// awaitThrottled has two busy loops run until they had to wait.
func awaitThrottled(t *testing.T, b sandbox.Backend, parent string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Exec(ctx, "while :; do :; done & while :; do :; done", sandbox.ExecOptions{Timeout: daemonTimeout})
	}()
	for throttled(t, parent) <= 0 {
		select {
		case <-ended:
			t.Fatal("two busy loops were not throttled")
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	<-ended
}

// throttled is for how long cgroups below another had to wait for processors.
func throttled(t *testing.T, parent string) time.Duration {
	t.Helper()
	var all time.Duration
	for _, controller := range []string{"cpu", ""} {
		top := filepath.Join("/sys/fs/cgroup", controller)
		inner, err := filepath.Glob(filepath.Join(top, parent, "*/cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range inner {
			d, err := cgroup.Group(strings.TrimPrefix(filepath.Dir(one), top)).Throttled()
			if err != nil {
				t.Fatal(err)
			}
			all += d
		}
	}
	return all
}
