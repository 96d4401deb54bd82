package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/controld/controld/integration/load/worker"
)

// process is a child that is told to end, waited for, and shot where it does
// not end. A child does not outlive this program, however that dies.
type process struct {
	cmd    *exec.Cmd
	name   string
	stderr *tail
	exited chan struct{}
	stop   syscall.Signal
	stdin  io.WriteCloser
	stdout io.ReadCloser
}

// tail keeps the last words of a child.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	t.buf = t.buf[max(0, len(t.buf)-4096):]
	return len(p), nil
}

// String returns them.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

// start starts a child; pipes ask for its standard input and output.
func (b *bench) start(name string, pipes bool, argv ...string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), name: name, stderr: &tail{}, exited: make(chan struct{}), stop: syscall.SIGTERM}
	p.cmd.Stderr = p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p.cmd.WaitDelay = 2 * time.Second
	if pipes {
		var err error
		if p.stdin, err = p.cmd.StdinPipe(); err != nil {
			return nil, err
		}
		out, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.stdout, p.cmd.Stdout = out, w
		defer w.Close()
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	b.logf("start %s: pid %d: %s", name, p.pid(), strings.Join(argv, " "))
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	b.mu.Lock()
	b.children = append(b.children, p)
	b.mu.Unlock()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end ends a child and its group.
func (p *process) end() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	if p.stdin == nil {
		p.cmd.Process.Signal(p.stop)
	}
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
	}
	syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.exited
	if p.stdout != nil {
		p.stdout.Close()
	}
}

// client is a worker in a process of its own.
type client struct {
	*process
	enc *json.Encoder
	dec *json.Decoder
}

func (b *bench) newClient() (*client, error) {
	p, err := b.start("client", true, b.self, "worker")
	if err != nil {
		return nil, err
	}
	return &client{process: p, enc: json.NewEncoder(p.stdin), dec: json.NewDecoder(p.stdout)}, nil
}

// do has the worker do one thing. One that does not answer is shot.
func (c *client) do(ctx context.Context, req worker.Request) (worker.Reply, error) {
	if req.Timeout == 0 {
		req.Timeout = 2 * time.Minute
	}
	var reply worker.Reply
	timer := time.AfterFunc(req.Timeout+10*time.Second, func() { c.cmd.Process.Kill() })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { c.cmd.Process.Kill() })()
	err := c.enc.Encode(req)
	if err == nil {
		err = c.dec.Decode(&reply)
	}
	if err != nil {
		return reply, fmt.Errorf("client: %w: %s", err, c.stderr)
	}
	if reply.Error != "" {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}

// usage is what processes have used, see proc(5).
type usage struct {
	cpu       float64 // seconds
	rss, peak int64   // bytes, of the first process alone
}

// usageOf sums the CPU time of a process, of the children it has reaped and
// of those that live.
func usageOf(pid int) usage {
	var u usage
	for _, id := range family(pid) {
		u.cpu += cpuOf(id)
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmHWM:":
			u.peak = kib << 10
		case "VmRSS:":
			u.rss = kib << 10
		}
	}
	return u
}

// ticksPerSecond is USER_HZ, 100 on every Linux.
const ticksPerSecond = 100

func cpuOf(pid int) float64 {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := bytes.Cut(stat, []byte(") "))
	f := strings.Fields(string(rest))
	if !ok || len(f) < 15 {
		return 0
	}
	sum := 0.0
	for _, ticks := range f[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseFloat(ticks, 64)
		sum += n / ticksPerSecond
	}
	return sum
}

// family returns a process and its descendants.
func family(pid int) []int {
	all := []int{pid}
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, child := range strings.Fields(string(text)) {
			if id, err := strconv.Atoi(child); err == nil {
				all = append(all, family(id)...)
			}
		}
	}
	return all
}

// resetPeak makes VmHWM what is resident now.
func resetPeak(pid int) {
	os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// run runs a command to its end and returns how long it took and its CPU time.
func (b *bench) run(ctx context.Context, stdin string, argv ...string) (measure, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	errs := &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	start := time.Now()
	err := cmd.Run()
	m := measure{seconds: time.Since(start).Seconds()}
	if err != nil {
		return m, nil, fmt.Errorf("%s: %w: %s %s", argv[0], err, errs, strings.TrimSpace(out.String()))
	}
	b.logf("ran: pid %d: %s", cmd.Process.Pid, strings.Join(argv, " "))
	m.client.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return m, out.Bytes(), nil
}
