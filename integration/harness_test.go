package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/daemon"
)

// buildOnce builds cmd/controld for all tests of the package.
var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "controld-integration-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "controld")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/controld")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// others are the programs that this one is as well, by a variable that says so.
var others = map[string]func() error{frontOf: serveFront, handsOver: handOver}

func TestMain(m *testing.M) {
	for variable, program := range others {
		if os.Getenv(variable) == "" {
			continue
		}
		if err := program(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if path, err := buildOnce(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func binary(t *testing.T) string {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// patience is ten times and more what anything here takes.
const patience = 60 * time.Second

// place is a state directory with a token, for one daemon after another.
type place struct {
	dir, secret, tokens string
	starts              func(*exec.Cmd) error // where not as usual
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{dir: t.TempDir()}
	p.tokens = filepath.Join(p.dir, "tokens")
	secret, line, err := sandboxhost.NewSecret(sandboxhost.Grant{Tenant: "acme", Sandbox: sandboxhost.AnySandbox})
	if err != nil {
		t.Fatal(err)
	}
	p.secret = secret
	if err := sandboxhost.AppendToken(p.tokens, line); err != nil {
		t.Fatal(err)
	}
	return p
}

// cwd is the directory of the default sandbox.
func (p *place) cwd() string { return filepath.Join(p.dir, "state", "sandboxes", "acme", "default") }

// process is a daemon in a process of its own.
type process struct {
	*exec.Cmd
	ready  daemon.Ready
	log    *bytes.Buffer
	exited chan struct{} // closed when ProcessState stands
}

// start starts a daemon and waits until it is ready.
func (p *place) start(t *testing.T, args ...string) *process {
	t.Helper()
	return p.startBehind(t, ":", args...)
}

// startBehind starts a daemon in a shell that has run some commands first.
func (p *place) startBehind(t *testing.T, commands string, args ...string) *process {
	t.Helper()
	readyFile := filepath.Join(p.dir, "ready.json")
	os.Remove(readyFile)
	args = append([]string{"-c", commands + `; exec "$0" "$@"`, binary(t)}, p.serve(readyFile, args...)...)
	return p.run(t, exec.Command("/bin/sh", args...), readyFile)
}

// serve returns the arguments of a daemon here, with more behind them.
func (p *place) serve(readyFile string, more ...string) []string {
	return append([]string{"serve", "--control", "tcp://127.0.0.1:0", "--data", "tcp://127.0.0.1:0", "--admin", "tcp://127.0.0.1:0",
		"--tokens", p.tokens, "--state-dir", filepath.Join(p.dir, "state"), "--ready-file", readyFile}, more...)
}

// run runs a daemon until the test ends, and waits until it is ready.
func (p *place) run(t *testing.T, cmd *exec.Cmd, readyFile string) *process {
	t.Helper()
	d := &process{Cmd: cmd, log: &bytes.Buffer{}, exited: make(chan struct{})}
	d.Stderr = d.log
	starts := (*exec.Cmd).Start
	if p.starts != nil {
		starts = p.starts
	}
	if err := starts(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.Wait()
		close(d.exited)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			d.autopsy(t)
		}
		// Two different signals, so that they do not become one: drain, and
		// at once. A daemon that is killed would leave its cgroup behind.
		d.Process.Signal(syscall.SIGTERM)
		d.Process.Signal(syscall.SIGINT)
		select {
		case <-d.exited:
		case <-time.After(10 * time.Second):
			d.Process.Kill()
			<-d.exited
		}
	})
	await(t, "the ready file", func() bool {
		select {
		case <-d.exited:
			t.Fatalf("the daemon ended: %s", d.log)
		default:
		}
		text, err := os.ReadFile(readyFile)
		return err == nil && json.Unmarshal(text, &d.ready) == nil
	})
	return d
}

// await polls for what another process does.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s never came", what)
		}
	}
}

// exitCode waits for the daemon's end.
func (d *process) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-d.exited:
		return d.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("the daemon does not end: %s", d.log)
		return -1
	}
}

func (d *process) kill(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := d.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// client connects to a daemon.
func (p *place) client(t *testing.T, d *process) *adapter.Sandbox {
	t.Helper()
	sb, err := adapter.New(adapter.Options{Control: d.ready.Control[0], Token: p.secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}

// autopsy logs what a daemon and this program were doing when a test failed:
// the daemon's threads, the kernel's sockets, both programs' goroutines and the
// daemon's log.
func (d *process) autopsy(t *testing.T) {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(d.Process.Pid) + "/task/*")
	for _, thread := range threads {
		stat, _ := os.ReadFile(filepath.Join(thread, "stat"))
		wchan, _ := os.ReadFile(filepath.Join(thread, "wchan"))
		t.Logf("thread %s, in %q", bytes.TrimSpace(stat), wchan)
	}
	sockets, _ := os.ReadFile("/proc/net/sockstat")
	counts, _ := os.ReadFile("/proc/net/netstat")
	t.Logf("sockets:\n%s%s", sockets, counts)
	text := make([]byte, 1<<20)
	t.Logf("this program:\n%s", text[:runtime.Stack(text, true)])
	d.Process.Signal(syscall.SIGQUIT)
	select {
	case <-d.exited:
		t.Logf("the daemon:\n%s", d.log)
	case <-time.After(10 * time.Second):
		t.Log("the daemon does not react to SIGQUIT")
	}
}

// metric reads one sample of the daemon's metrics.
func metric(t *testing.T, d *process, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + strings.TrimPrefix(d.ready.Admin, "tcp://") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// alive tells whether a process lives; a zombie does not.
func alive(pid string) bool { return check.Running(pid) }

// trace has strace(1) write down, or tamper with, calls of a daemon. The
// tracer stands beside the daemon, so that signals go to the daemon, and ends
// with it.
func trace(t *testing.T, d *process, path, calls string, more ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("needs strace: apt-get install strace")
	}
	args := append([]string{"-f", "-e", calls, "-o", path, "-p", strconv.Itoa(d.ready.PID)}, more...)
	tracer := exec.Command("strace", args...)
	stderr, err := tracer.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	if first, _ := said.ReadString('\n'); !strings.Contains(first, "attached") {
		tracer.Wait()
		t.Skipf("strace may not attach here: %s (run as root, or set kernel.yama.ptrace_scope to 0)", first)
	}
	return tracer
}
