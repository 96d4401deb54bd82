package goals

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
)

// injection has a system call of a daemon fail. The kernel's count is that of
// each thread: When is the n-th call of whichever thread comes so far.
type injection struct {
	call  string
	errno string
	when  int
}

// tracer is strace(1) on a daemon.
type tracer struct {
	cmd *exec.Cmd
	log string
}

// inject attaches to a daemon.
func inject(ctx context.Context, d *ground.Daemon, log string, in injection) (*tracer, error) {
	os.Remove(log)
	t := &tracer{log: log, cmd: exec.CommandContext(ctx, "strace", "-f", "-e", "trace="+in.call, "-e",
		fmt.Sprintf("inject=%s:error=%s:when=%d", in.call, in.errno, in.when), "-o", log, "-p", strconv.Itoa(d.PID()))}
	stderr, err := t.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	said := bufio.NewReader(stderr)
	if first, _ := said.ReadString('\n'); !strings.Contains(first, "attached") {
		t.cmd.Process.Kill()
		t.cmd.Wait()
		return nil, proof.Lacking("strace may not attach here: " + strings.TrimSpace(first) + " (run as root, or set kernel.yama.ptrace_scope to 0)")
	}
	go said.WriteTo(devNull{})
	return t, nil
}

// devNull takes what nobody wants.
type devNull struct{}

// Write implements io.Writer.
func (devNull) Write(p []byte) (int, error) { return len(p), nil }

// detach lets the daemon go and tells whether the call has failed, and where.
func (t *tracer) detach() (failed bool, line string) {
	t.cmd.Process.Signal(syscall.SIGINT)
	t.cmd.Wait()
	text, _ := os.ReadFile(t.log)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "(INJECTED)") {
			return true, strings.TrimSpace(line)
		}
	}
	return false, ""
}

// canTrace tries strace on this program's own child.
func canTrace(ctx context.Context, dir string) error {
	if _, err := exec.LookPath("strace"); err != nil {
		return proof.Lacking("strace is missing: apt-get install strace")
	}
	return exec.CommandContext(ctx, "strace", "-qq", "-o", filepath.Join(dir, "trace"), "true").Run()
}
