package integration

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// firstProcess starts an agent as process 1 of a process namespace of its own,
// and returns its number outside and where it listens.
func firstProcess(t *testing.T) (pid int, url string) {
	t.Helper()
	sum := sha256.Sum256([]byte(wireSecret))
	args := []string{"--pid", "--fork", "--kill-child", "--mount-proc", "--", binary(t), "agent", "--listen", "tcp://127.0.0.1:0",
		"--secret-sha256", hex.EncodeToString(sum[:]), "--cwd", t.TempDir()}
	if os.Getuid() != 0 {
		args = append([]string{"--user", "--map-root-user"}, args...)
	}
	cmd := exec.Command("unshare", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs unshare(1): %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	said := bufio.NewReader(stderr)
	line, err := said.ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), "agent listens on ")
	if !ok {
		t.Skipf("no process namespace here: %s %v (run as root, or allow user namespaces)", line, err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	return pid, url
}

// zombies counts the dead children of a process that have a name.
func zombies(pid int, name string) (n int) {
	dirs, _ := os.ReadDir("/proc")
	for _, dir := range dirs {
		stat, err := os.ReadFile("/proc/" + dir.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, named := strings.Cut(string(stat), "("+name+") ")
		if fields := strings.Fields(rest); named && fields[0] == "Z" && fields[1] == strconv.Itoa(pid) {
			n++
		}
	}
	return n
}

// TestCase_C18: an agent that is process 1 reaps what is orphaned to it, and
// loses no status to that.
func TestCase_C18(t *testing.T) {
	pid, url := firstProcess(t)
	sb, err := adapter.New(adapter.Options{Control: url, Token: wireSecret})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var lanes, watch sync.WaitGroup
	most, looks := 0, 0
	watch.Go(func() {
		for ctx.Err() == nil {
			most, looks = max(most, zombies(pid, "sleep")), looks+1
		}
	})
	const each = 125
	for lane := range 4 {
		lanes.Go(func() {
			for i := range each {
				code := (lane*each + i) % 100
				// The inner shell orphans a child that ends by itself.
				res, err := sb.Exec(t.Context(), fmt.Sprintf("(sh -c 'sleep 0.02 & exit') ; exit %d", code), sandbox.ExecOptions{})
				if err != nil || res.ExitCode != code {
					t.Errorf("exit %d: %+v, %v", code, res, err)
					return
				}
			}
		})
	}
	began := time.Now()
	lanes.Wait()
	await(t, "the last orphans to be reaped", func() bool { return zombies(pid, "sleep") == 0 })
	cancel()
	watch.Wait()
	t.Logf("%d commands in %v, at most %d zombies in %d looks", 4*each, time.Since(began), most, looks)
	if most > 16 {
		t.Errorf("%d zombies", most)
	}
}
