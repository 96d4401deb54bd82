package agent_test

import (
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandboxhost/agent"
)

// foeEnv makes the test program the hostile workload of a sandbox: it names
// what to do.
const foeEnv = "AGENT_TEST_FOE"

func TestMain(m *testing.M) {
	if what := os.Getenv(foeEnv); what != "" {
		os.Exit(foe(what))
	}
	code := m.Run()
	if path, err := built(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// built is the program as drivers get it.
var built = sync.OnceValues(func() (string, error) {
	// It is in this program, too, lest go test take another one's results for its.
	runtime.KeepAlive(agent.Agent.Run)
	dir, err := os.MkdirTemp("", "controld-agent-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // an ordinary user's sandbox, too
		return "", err
	}
	path := filepath.Join(dir, "controld-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "../../cmd/controld-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func program(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestProgramIsSmallAndStatic: it is put into every sandbox, whatever is there.
func TestProgramIsSmallAndStatic(t *testing.T) {
	info, err := os.Stat(program(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", info.Size())
	if info.Size() > 10<<20 {
		t.Errorf("%d bytes, more than 10 MiB", info.Size())
	}
	f, err := elf.Open(program(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a %s: it is not static", p.Type)
		}
	}
}

// patience is far more than anything here takes.
const patience = 60 * time.Second

// answerBy is when an agent has to answer whatever is done to it.
const answerBy = 10 * time.Second

// cage is a sandbox made by bwrap(1) in which the agent is process 1.
type cage struct {
	work   string // /workspace, outside
	secret string
	socket string // outside
	given  bool   // the socket is handed over, and in no directory inside
	state  *os.File
	stderr *os.File
	args   []string // more for the agent
	open   string   // a directory to write in at /open, where there is one
	noProc bool
}

// caged is a cage in which the agent runs.
type caged struct {
	*adapter.Sandbox
	cmd   *exec.Cmd
	epoch string
}

func newCage(t *testing.T) *cage {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("needs bwrap: apt-get install bubblewrap")
	}
	if out, err := exec.Command("bwrap", "--unshare-all", "--ro-bind", "/", "/", "true").CombinedOutput(); err != nil {
		t.Skipf("bwrap may not make namespaces here: %s (allow user namespaces)", out)
	}
	dir := t.TempDir()
	c := &cage{work: filepath.Join(dir, "work"), secret: rand.Text(), socket: filepath.Join(dir, "agent"), given: true, stderr: os.Stderr}
	if err := os.Mkdir(c.work, 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// start starts the agent and connects to it. Both end with the test.
func (c *cage) start(t *testing.T) *caged {
	t.Helper()
	p := c.run(t)
	p.Sandbox = c.client(t)
	await(t, "the agent", func() bool { return p.Ping(t.Context()) == nil })
	p.epoch = p.answers(t)
	return p
}

// run starts the agent until the test ends.
func (c *cage) run(t *testing.T) *caged {
	t.Helper()
	foe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--unshare-all", "--as-pid-1", "--die-with-parent", "--clearenv", "--cap-drop", "ALL",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--dev", "/dev", "--bind", c.work, "/workspace",
		"--ro-bind", program(t), "/controld-agent", "--ro-bind", foe, "/foe"}
	if c.open != "" {
		args = append(args, "--bind", c.open, "/open")
	}
	if !c.noProc {
		args = append(args, "--proc", "/proc")
	}
	url := "unix://" + c.socket
	if !c.given {
		c.socket, url = filepath.Join(c.work, "agent"), "unix:///workspace/agent"
	} else {
		args = append(args, "--setenv", "LISTEN_FDS", "1", "--setenv", "LISTEN_PID", "1")
	}
	args = append(args, "/controld-agent", "--listen", url, "--cwd", "/workspace",
		"--secret-sha256", fmt.Sprintf("%x", sha256.Sum256([]byte(c.secret))))
	p := &caged{cmd: exec.Command("bwrap", append(args, c.args...)...)}
	p.cmd.Stderr = c.stderr
	if c.given {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, c.listen(t))
	}
	if c.state != nil {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, c.state)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// await polls for what another process does.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s never came", what)
		}
	}
}

// listen opens the socket that is handed over.
func (c *cage) listen(t *testing.T) *os.File {
	t.Helper()
	os.Remove(c.socket)
	ln, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	defer ln.Close()
	f, err := ln.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// client is a connection of the host's.
func (c *cage) client(t *testing.T) *adapter.Sandbox {
	t.Helper()
	sb, err := adapter.New(adapter.Options{Control: "unix://" + c.socket, Data: []string{"unix://" + c.socket}, Token: c.secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}

// first is the agent's number outside.
func (p *caged) first(t *testing.T) int {
	t.Helper()
	bwrap := strconv.Itoa(p.cmd.Process.Pid)
	text, err := os.ReadFile("/proc/" + bwrap + "/task/" + bwrap + "/children")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// kill ends the sandbox from outside, with all in it.
func (p *caged) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}
