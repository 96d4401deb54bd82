package integration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// stay is what a survivor does; deaf what one does that TERM does not end.
const (
	stay = "echo $$ >> pids; exec sleep 300"
	deaf = `trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 300; done`
)

// escapes are the ways in which a process tries to outlive its command. Each
// writes one number to the file pids.
var escapes = map[string]string{
	"child":            "sh -c '" + stay + "' & wait",
	"group":            "set -m; sh -c '" + stay + "' & wait",
	"nohup":            "nohup sh -c '" + stay + "' >/dev/null 2>&1 & wait",
	"deaf":             "trap '' TERM HUP INT; sh -c '" + deaf + "' & while :; do sleep 300; done",
	"session":          "setsid sh -c '" + stay + "' & wait",
	"double fork":      "(sh -c '" + stay + "' &); sleep 300",
	"daemon":           "setsid -f setsid -f sh -c '" + stay + "' </dev/null >/dev/null 2>&1; sleep 300",
	"background":       "setsid -f sh -c '" + deaf + "' </dev/null >/dev/null 2>&1; while [ ! -s pids ]; do sleep 0.01; done",
	"no environment":   "env -i setsid -f sh -c '" + deaf + "'; sleep 300",
	"no mark":          "(ulimit -w 5 2>/dev/null || ulimit -x 5; exec setsid sh -c '" + stay + "') & wait",
	"nothing left":     "(ulimit -w 5 2>/dev/null || ulimit -x 5; env -i setsid -f sh -c '" + deaf + "'); sleep 300",
	"stopped, no wait": "setsid -f sh -c 'echo $$ >> pids; kill -STOP $$'; sleep 300",
}

// escaping runs a command of each shape through a client, each in a directory
// of its own below dir, which is the client's.
type escaping struct {
	names []string
	dir   string
	runs  sync.WaitGroup
	left  chan struct{} // closed when the one that leaves a child has ended
}

func runEscapes(ctx context.Context, t *testing.T, sb *adapter.Sandbox, dir string, o sandbox.ExecOptions) *escaping {
	t.Helper()
	e := &escaping{dir: dir, left: make(chan struct{})}
	for name, command := range escapes {
		e.names = append(e.names, name)
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		o := o
		o.Cwd = name
		e.runs.Go(func() {
			sb.Exec(ctx, command, o)
			if name == "background" {
				close(e.left)
			}
		})
	}
	return e
}

// pids waits until each has written its number, and the one that leaves a child
// behind has left it.
func (e *escaping) pids(t *testing.T) (pids []string) {
	t.Helper()
	for _, name := range e.names {
		file := filepath.Join(e.dir, name, "pids")
		await(t, name, func() bool {
			b, err := os.ReadFile(file)
			return err == nil && strings.HasSuffix(string(b), "\n")
		})
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, strings.Fields(string(b))...)
	}
	select {
	case <-e.left:
	case <-time.After(patience):
		t.Fatal("a child in the background holds its command back")
	}
	if left := living(pids); len(left) != len(escapes) {
		t.Fatalf("%v live of %v", left, pids)
	}
	return pids
}

// background is the number of what outlives its command by right: until its sandbox
// or its daemon ends.
func (e *escaping) background(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(e.dir, "background", "pids"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestNothingOutlivesItsCommand: P9.9, P9.11 and P9.15. Whatever ends a command,
// nothing of it is left, in both ways to hold trees.
func TestNothingOutlivesItsCommand(t *testing.T) {
	for _, cgroups := range []string{"auto", "off"} {
		for _, end := range []string{"timeout", "cancel", "client", "SIGTERM", "SIGKILL"} {
			t.Run(cgroups+"/"+end, func(t *testing.T) {
				p := newPlace(t)
				d := p.start(t, "--cgroups", cgroups, "--drain-timeout", "100ms", "--reconnect-grace", "100ms")
				sb := p.client(t, d)
				if _, err := sb.Info(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				o := sandbox.ExecOptions{}
				if end == "timeout" {
					o.Timeout = 5 * time.Second
				}
				e := runEscapes(ctx, t, sb, p.cwd(), o)
				pids := e.pids(t)
				switch end {
				case "cancel":
					cancel()
				case "client":
					sb.Close()
				case "SIGTERM":
					d.kill(t, syscall.SIGTERM)
				case "SIGKILL":
					d.kill(t, syscall.SIGKILL)
				}
				if !strings.HasPrefix(end, "SIG") {
					stays := e.background(t)
					awaitEnd(t, slices.DeleteFunc(slices.Clone(pids), func(pid string) bool { return pid == stays }))
					if !alive(stays) {
						t.Error("what was left in the background has ended with another command")
					}
					d.kill(t, syscall.SIGTERM)
				}
				awaitEnd(t, pids)
				<-d.exited
				cancel()
				e.runs.Wait()
			})
		}
	}
}

// TestNothingOutlivesItsAgent: P9.15. The agent inside a sandbox may be killed,
// too.
func TestNothingOutlivesItsAgent(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			url := "unix://" + filepath.Join(dir, "agent")
			cmd := exec.Command(binary(t), "agent", "--listen", url, "--cwd", dir, "--secret-sha256", fmt.Sprintf("%x", sha256.Sum256([]byte("secret"))))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			sb, err := adapter.New(adapter.Options{Control: url, Token: "secret"})
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Close()
			await(t, "the agent", func() bool { return sb.Ping(t.Context()) == nil })
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			e := runEscapes(ctx, t, sb, dir, sandbox.ExecOptions{})
			pids := e.pids(t)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			awaitEnd(t, pids)
			cancel()
			e.runs.Wait()
		})
	}
}
