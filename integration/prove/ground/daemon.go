package ground

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandboxhost/daemon"
)

// Daemon is a daemon in a process of its own.
type Daemon struct {
	Ready  daemon.Ready
	place  *Place
	cmd    *exec.Cmd
	log    logged
	exited chan struct{}
}

// logged keeps the end of what a daemon says.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > 1<<16 {
		l.buf.Next(l.buf.Len() / 2)
	}
	return l.buf.Write(p)
}

// Start starts a daemon and waits until it accepts. args are added to its own.
// The caller ends it, by Stop or by a signal and Wait.
func (p *Place) Start(ctx context.Context, args ...string) (*Daemon, error) {
	file := filepath.Join(p.dir, "ready.json")
	os.Remove(file)
	args = append([]string{"serve", "--traceable", "--control", "tcp://127.0.0.1:0", "--data", "tcp://127.0.0.1:0", "--admin", "tcp://127.0.0.1:0",
		"--tokens", p.Tokens, "--state-dir", p.State(), "--ready-file", file, "--log-level", "warn"}, args...)
	d := &Daemon{place: p, cmd: exec.Command(p.ground.Binary(), args...), exited: make(chan struct{})}
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		d.cmd.Wait()
		close(d.exited)
	}()
	if err := d.await(ctx, file); err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

// await polls for the ready file.
func (d *Daemon) await(ctx context.Context, file string) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &d.Ready) == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.exited:
			return fmt.Errorf("the daemon ended: %s", d.Log())
		case <-ctx.Done():
			return fmt.Errorf("the daemon is not ready: %w: %s", ctx.Err(), d.Log())
		}
	}
}

// PID is that of the daemon's process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Log is the end of what the daemon has said.
func (d *Daemon) Log() string {
	d.log.mu.Lock()
	defer d.log.mu.Unlock()
	return d.log.buf.String()
}

// Signal sends a signal to the daemon.
func (d *Daemon) Signal(sig syscall.Signal) error { return d.cmd.Process.Signal(sig) }

// Alive tells whether the daemon has not ended.
func (d *Daemon) Alive() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// Wait waits for the end and returns the exit code, -1 after a signal.
func (d *Daemon) Wait(ctx context.Context) (int, error) {
	select {
	case <-d.exited:
		return d.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the daemon does not end: %w: %s", ctx.Err(), d.Log())
	}
}

// Kill kills the daemon and waits.
func (d *Daemon) Kill() {
	d.cmd.Process.Kill()
	<-d.exited
}

// Stop ends the daemon: first so that it can clear up, then by force. Two
// different signals do not become one: drain, and at once.
func (d *Daemon) Stop() {
	d.Signal(syscall.SIGCONT)
	d.Signal(syscall.SIGTERM)
	d.Signal(syscall.SIGINT)
	timer := time.AfterFunc(10*time.Second, func() { d.cmd.Process.Kill() })
	defer timer.Stop()
	<-d.exited
}

// Control and Data are the addresses of the two planes, as host:port.
func (d *Daemon) Control() string { return hostPort(d.Ready.Control[0]) }

// Data is the address of the data plane, as host:port.
func (d *Daemon) Data() string { return hostPort(d.Ready.Data[0]) }

func hostPort(url string) string {
	_, addr, _ := strings.Cut(url, "://")
	return addr
}

// Client returns a client; o may say more than where to and who. The caller
// closes it.
func (d *Daemon) Client(o adapter.Options) (*adapter.Sandbox, error) {
	if o.Control == "" {
		o.Control = d.Ready.Control[0]
	}
	if o.Token == "" {
		o.Token = d.place.Secret
	}
	return adapter.New(o)
}

// Command returns a process of the daemon's own client.
func (d *Daemon) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.cmd.Path, args...)
	cmd.Env = append(os.Environ(), "CONTROLD_ADDR="+d.Ready.Control[0], "CONTROLD_TOKEN="+d.place.Secret)
	return cmd
}

// Metric reads one sample of the daemon's metrics.
func (d *Daemon) Metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+hostPort(d.Ready.Admin)+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return sample(resp.Body, name)
}
