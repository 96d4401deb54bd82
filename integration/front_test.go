package integration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandboxhost/daemon"
)

// The variables that turn this program into a front: a daemon in front of an
// agent, as a driver would make it.
const (
	frontOf    = "CONTROLD_TEST_FRONT_OF"    // the agent's URL
	frontAt    = "CONTROLD_TEST_FRONT_AT"    // the file for the front's own
	frontFiles = "CONTROLD_TEST_FRONT_FILES" // not empty: files change hands
)

// serveFront is the program of a front. It ends with SIGTERM.
func serveFront() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	sb, err := adapter.New(adapter.Options{Control: os.Getenv(frontOf), Token: "secret", PassFiles: os.Getenv(frontFiles) != ""})
	if err != nil {
		return err
	}
	defer sb.Close()
	ln, err := dataport.Listen(dataport.Endpoint{Scheme: dataport.SchemeTCP, Host: "127.0.0.1"}, dataport.ListenOptions{})
	if err != nil {
		return err
	}
	url := "tcp://" + ln.Addr().String()
	srv := server.New(server.Config{Host: anybody{sb}, DataURLs: func(net.Addr) []string { return []string{url} }})
	defer srv.Close()
	at := os.Getenv(frontAt)
	if err := os.WriteFile(at+".new", []byte(url), 0o600); err != nil {
		return err
	}
	if err := os.Rename(at+".new", at); err != nil {
		return err
	}
	if err := srv.Serve(ctx, ln, server.Control|server.Data); ctx.Err() == nil {
		return err
	}
	return nil
}

// hops are an agent, its sandbox and a front, processes of their own.
type hops struct {
	dir          string // of the sandbox
	agent, front *process
	agentURL     string
	url          string // of the front
}

// startProcess starts a program until the test ends.
func startProcess(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	cmd.Stderr = os.Stderr
	return startQuiet(t, cmd)
}

// startQuiet leaves it to the caller what becomes of what the program says.
func startQuiet(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	d := &process{Cmd: cmd, exited: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.ready = daemon.Ready{PID: cmd.Process.Pid}
	go func() {
		cmd.Wait()
		close(d.exited)
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Process.Signal(syscall.SIGTERM)
		<-d.exited
	})
	return d
}

// startHops starts them on the disk of the test's directory.
func startHops(t testing.TB, files bool) *hops {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := &hops{dir: filepath.Join(dir, "cwd"), agentURL: "unix://" + filepath.Join(dir, "agent")}
	h.agent = startProcess(t, exec.Command(path, "agent", "--traceable", "--listen", h.agentURL, "--cwd", h.dir,
		"--secret-sha256", fmt.Sprintf("%x", sha256.Sum256([]byte("secret")))))
	awaitFile(t, strings.TrimPrefix(h.agentURL, "unix://"))

	cmd := exec.Command("/proc/self/exe")
	at := filepath.Join(dir, "front")
	cmd.Env = append(os.Environ(), frontOf+"="+h.agentURL, frontAt+"="+at)
	if files {
		cmd.Env = append(cmd.Env, frontFiles+"=1")
	}
	h.front = startProcess(t, cmd)
	h.url = awaitFile(t, at)
	return h
}

// awaitFile waits for a file and returns what it holds, if it can be read.
func awaitFile(t testing.TB, path string) string {
	t.Helper()
	await(t, path, func() bool { _, err := os.Lstat(path); return err == nil })
	text, _ := os.ReadFile(path)
	return string(text)
}

// client is a client of the front.
func (h *hops) client(t testing.TB) *adapter.Sandbox {
	t.Helper()
	return connectTo(t, h.url)
}

func connectTo(t testing.TB, url string) *adapter.Sandbox {
	t.Helper()
	sb, err := adapter.New(adapter.Options{Control: url, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}
