package ground

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// ErrMissing says what the machine lacks, and how to get it.
var ErrMissing = errors.New("missing")

// First is an agent that is process 1 of a process namespace of its own.
type First struct {
	// PID is its number outside, URL where it listens, Secret who may come.
	PID         int
	URL, Secret string
	cmd         *exec.Cmd
}

// unshared returns a command of unshare(1) that becomes process 1, as an
// ordinary user with names of its own for users, too. It ends with unshare.
func unshared(ctx context.Context, args ...string) *exec.Cmd {
	as := []string{"--pid", "--fork", "--kill-child", "--mount-proc", "--"}
	if os.Getuid() != 0 {
		as = append([]string{"--user", "--map-root-user"}, as...)
	}
	return exec.CommandContext(ctx, "unshare", append(as, args...)...)
}

// StartFirst starts a program's agent, with its sandbox in dir. Where there is
// no unshare(1), or no namespace for this user, it is [ErrMissing]. The caller
// stops it; the end of ctx does, too.
func StartFirst(ctx context.Context, program, dir string) (*First, error) {
	f := &First{Secret: rand.Text()}
	sum := sha256.Sum256([]byte(f.Secret))
	f.cmd = unshared(ctx, program, "agent", "--listen", "tcp://127.0.0.1:0", "--secret-sha256", hex.EncodeToString(sum[:]), "--cwd", dir)
	stderr, err := f.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: unshare(1): %w (Debian package util-linux)", ErrMissing, err)
	}
	said := bufio.NewReader(stderr)
	line, err := said.ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), "agent listens on ")
	if !ok {
		f.Stop()
		return nil, fmt.Errorf("%w: a process namespace: %s %v (run as root, or allow user namespaces)", ErrMissing, line, err)
	}
	go io.Copy(io.Discard, said)
	f.URL = url
	if f.PID, err = onlyChild(f.cmd.Process.Pid); err != nil {
		f.Stop()
	}
	return f, err
}

// StartCareless starts a shell that becomes process 1, runs a script and then
// reaps nobody; it returns the shell's number outside.
func StartCareless(ctx context.Context, script string) (pid int, stop func(), err error) {
	cmd := unshared(ctx, "sh", "-c", script+"; echo >&2; exec sleep 300")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, nil, err
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	if _, err = bufio.NewReader(stderr).ReadString('\n'); err == nil {
		pid, err = onlyChild(cmd.Process.Pid)
	}
	if err != nil {
		stop()
	}
	return pid, stop, err
}

// onlyChild returns the number of a process's one child.
func onlyChild(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Stop ends the agent, with all that it has started. It may be called twice.
func (f *First) Stop() {
	f.cmd.Process.Kill()
	f.cmd.Wait()
}
