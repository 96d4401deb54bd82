package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/controld/controld/integration/load/worker"
)

// move returns a case that moves one file with a worker. Every case has a
// client process of its own.
func (b *bench) move(stack, op string, sync bool) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		s, err := b.server(ctx, stack)
		if err != nil {
			return measure{}, err
		}
		req := worker.Request{Op: op, Stack: stack, Remote: b.source, Local: b.target(), Size: b.size, Sync: sync}
		if op == "up" {
			req.Remote, req.Local = b.target(), b.source
		}
		if sync {
			req.Remote = b.onDisk()
		}
		return b.moveOnce(ctx, s, req)
	}
}

// target is the file on tmpfs that transfers make.
func (b *bench) target() string { return filepath.Join(b.shm, "target") }

// onDisk is the file on the disk that transfers make.
func (b *bench) onDisk() string { return filepath.Join(b.temp, "target") }

func (b *bench) moveOnce(ctx context.Context, s *server, req worker.Request) (measure, error) {
	c, err := b.newClient()
	if err != nil {
		return measure{}, err
	}
	defer c.end()
	defer os.Remove(b.target())
	defer os.Remove(b.onDisk())
	req.Timeout = b.patience(req.Size)
	reply, m, err := b.ask(ctx, c, s, req)
	m.seconds, m.bytes = reply.Took.Seconds(), reply.Bytes
	if err != nil || !worker.IsControld(req.Stack) || req.Op == "recv" {
		return m, err
	}
	return m, same(req.Remote, req.Local)
}

// patience is how long so many bytes may take.
func (b *bench) patience(size int64) time.Duration {
	return time.Minute + time.Duration(size>>20)*50*time.Millisecond
}

// ask has a client do something with a server and measures what both used.
func (b *bench) ask(ctx context.Context, c *client, s *server, req worker.Request) (worker.Reply, measure, error) {
	var m measure
	req.Addr, req.Token, req.Identity = s.addr, b.secret, b.pair
	if b.prof != "" {
		name := strings.NewReplacer(" ", "-", "/", "-").Replace(b.trial)
		req.Profile = filepath.Join(b.prof, name+".client.pprof")
		defer b.profileDaemon(s, filepath.Join(b.prof, name+".daemon.pprof"))()
	}
	resetPeak(s.pid())
	beforeC, beforeS := usageOf(c.pid()), usageOf(s.pid())
	reply, err := c.do(ctx, req)
	m.client, m.server = usageOf(c.pid()), usageOf(s.pid())
	m.client.cpu -= beforeC.cpu
	m.server.cpu -= beforeS.cpu
	return reply, m, err
}

// profileDaemon takes a CPU profile of a daemon; the function returned waits
// for it. The profile covers a second at least.
func (b *bench) profileDaemon(s *server, path string) func() {
	if s.admin == "" {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.Get("http://" + s.admin + "/debug/pprof/profile?seconds=2")
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if f, err := os.Create(path); err == nil {
			io.Copy(f, resp.Body)
			f.Close()
		}
	}()
	return func() { <-done }
}

// copied returns a case that is a command which makes a file.
func (b *bench) copied(target string, argv ...string) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		defer os.Remove(target)
		m, _, err := b.run(ctx, "", argv...)
		if err != nil {
			return m, err
		}
		return m, b.check(&m, target)
	}
}

// check notes the size of what came.
func (b *bench) check(m *measure, target string) error {
	st, err := os.Stat(target)
	if err != nil {
		return err
	}
	if m.bytes = st.Size(); m.bytes != b.size {
		return fmt.Errorf("%d bytes of %d arrived in %s", m.bytes, b.size, target)
	}
	return nil
}

// fromServer returns a case whose client is a command that talks to a server
// with its address and makes (or has made) the target.
func (b *bench) fromServer(kind string, command func(host, port string) (stdin string, argv []string)) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		s, err := b.server(ctx, kind)
		if err != nil {
			return measure{}, err
		}
		host, port, err := net.SplitHostPort(s.addr)
		if err != nil {
			return measure{}, err
		}
		stdin, argv := command(host, port)
		if _, err := b.command(ctx, argv[0]); err != nil {
			return measure{}, err
		}
		defer os.Remove(b.target())
		resetPeak(s.pid())
		before := usageOf(s.pid())
		m, out, err := b.run(ctx, stdin, argv...)
		if err != nil {
			return m, err
		}
		time.Sleep(50 * time.Millisecond) // until the server has reaped its children
		m.server = usageOf(s.pid())
		m.server.cpu -= before.cpu
		if kind == iperf {
			return m, iperfResult(&m, out)
		}
		return m, b.check(&m, b.target())
	}
}

// iperfResult takes rate and bytes from the report of iperf3.
func iperfResult(m *measure, report []byte) error {
	var r struct {
		End struct {
			Received struct{ Seconds, Bytes float64 } `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return fmt.Errorf("iperf3: %w", err)
	}
	m.seconds, m.bytes = r.End.Received.Seconds, int64(r.End.Received.Bytes)
	if m.bytes == 0 || m.seconds == 0 {
		return fmt.Errorf("iperf3 received nothing")
	}
	return nil
}

// ssh returns the options of ssh's programs.
func (b *bench) ssh() []string {
	return []string{"-q", "-F", "none", "-i", filepath.Join(b.temp, "user"), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"}
}

// sftp returns the case of one put or get.
func (b *bench) sftp(verb string) func(context.Context) (measure, error) {
	return b.fromServer(sshd, func(host, port string) (string, []string) {
		argv := append([]string{"sftp", "-P", port, "-b", "-"}, b.ssh()...)
		return verb + " " + b.source + " " + b.target() + "\n", append(argv, host)
	})
}

// scp returns the case of one copy, up or down.
func (b *bench) scp(up bool) func(context.Context) (measure, error) {
	return b.fromServer(sshd, func(host, port string) (string, []string) {
		from, to := host+":"+b.source, b.target()
		if up {
			from, to = b.source, host+":"+b.target()
		}
		argv := append([]string{"scp", "-P", port, "-c", "aes128-gcm@openssh.com"}, b.ssh()...)
		return "", append(argv, from, to)
	})
}

func (b *bench) sizeText() string { return humanize.IBytes(uint64(b.size)) }
