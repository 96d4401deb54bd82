package drivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/sandboxtest"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/docker"
)

// elsewhere is an engine that is reached by TCP alone and has an image, small.
type elsewhere struct {
	url    string
	socket string
	conns  *forwarder
}

// inSmall are the programs of the image: this machine's, with their libraries.
const inSmall = "sh cat chmod chown cp cut dd echo env false find grep head id kill ln ls mkdir mkfifo mv nohup od printf ps pwd readlink rm sed seq " +
	"setsid sleep sort stat sync tail tee test timeout touch tr true truncate uname wc xargs yes"

func newElsewhere(t testing.TB) *elsewhere {
	t.Helper()
	kinds["docker"].want(t)
	socket := dockerd(t)
	script := `mkdir -p bin usr/bin etc tmp
for name in $0; do
	at=$(PATH=/usr/bin:/bin command -v $name) || at=/usr/bin/$name
	[ -e "$at" ] || at=/usr/bin/$name
	cp -L "$at" bin/$name
	ldd "$at" | grep -o '/[^ ]*' | while read lib; do mkdir -p ".$(dirname $lib)"; cp -L -n "$lib" ".$lib"; done
done
echo root:x:0:0:root:/root:/bin/sh >etc/passwd
tar -c . | docker import - small >/dev/null`
	cmd := exec.Command("sh", "-ec", script, inSmall)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "DOCKER_HOST=unix://"+socket)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	f := forward(t, socket)
	return &elsewhere{url: "tcp://" + f.ln.Addr().String(), socket: socket, conns: f}
}

func (e *elsewhere) driver(t testing.TB) sandboxhost.Driver {
	t.Helper()
	d, err := docker.New(docker.Options{Engine: e.url, Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

var small = sandboxhost.Box{Image: "small"}

// forwarder joins TCP connections to a Unix socket, and can cut them.
type forwarder struct {
	ln net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
	work  sync.WaitGroup
}

func forward(t testing.TB, socket string) *forwarder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{ln: ln, conns: make(map[net.Conn]bool)}
	f.work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f.work.Go(func() { f.join(c.(*net.TCPConn), socket) })
		}
	})
	t.Cleanup(func() { ln.Close(); f.cut(); f.work.Wait() })
	return f
}

func (f *forwarder) join(c *net.TCPConn, socket string) {
	defer c.Close()
	to, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer to.Close()
	f.mu.Lock()
	f.conns[c], f.conns[to] = true, true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.conns, c)
		delete(f.conns, to)
	}()
	var both sync.WaitGroup
	both.Go(func() { io.Copy(to, c); to.(*net.UnixConn).CloseWrite() })
	io.Copy(c, to)
	c.CloseWrite()
	both.Wait()
}

// cut closes all connections of now.
func (f *forwarder) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		c.Close()
	}
}

// engine asks the engine itself.
func (e *elsewhere) engine(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(client.WithHost("unix://" + e.socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// holds counts what the engine holds of controld's.
func (e *elsewhere) holds(t testing.TB) (containers, volumes int) {
	t.Helper()
	c := e.engine(t)
	all, err := c.ContainerList(context.Background(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := c.VolumeList(context.Background(), client.VolumeListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(all.Items), len(stored.Items)
}

// TestElsewhere: the whole suite, by a relay on the standard input and output of
// an exec.
func TestElsewhere(t *testing.T) {
	e := newElsewhere(t)
	b, err := newHostOf(t, e.driver(t), small).Backend(t.Context(), "acme", "default")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := b.Info(t.Context()); err != nil || info.Cwd != "/workspace" {
		t.Errorf("%+v, %v", info, err)
	}
	sandboxtest.Run(t, b)
}

// TestElsewhereLives: a daemon's sandboxes there keep their files from life to
// life, survive a lost engine and a killed daemon, and go with what they kept.
func TestElsewhereLives(t *testing.T) {
	e := newElsewhere(t)
	p := newPlace(t, []string{"--driver", "docker", "--engine", e.url, "--image", "small"})
	d := p.serve(t)
	a := p.client(t, d)
	if _, err := a.WriteFile(t.Context(), "kept", []byte("text"), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	// What is in memory is there for as long as the instance is.
	if _, err := a.WriteFile(t.Context(), "/tmp/mark", nil, sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.conns.cut()
	text, err := a.ReadFile(t.Context(), "kept", sandbox.ReadOptions{})
	for err != nil && sandbox.KindOf(err) != sandbox.KindNotFound { // what was cut in the middle may say so once
		text, err = a.ReadFile(t.Context(), "kept", sandbox.ReadOptions{})
	}
	if text != "text" {
		t.Errorf("behind a lost engine: %q, %v", text, err)
	}
	d.end(t, syscall.SIGKILL)
	d = p.serve(t)
	a = p.client(t, d)
	if there, err := a.Exists(t.Context(), "/tmp/mark", sandbox.ExistsOptions{}); err != nil || !there {
		t.Errorf("it was not taken over: %v, %v", there, err)
	}
	d.end(t, syscall.SIGTERM)
	if containers, volumes := e.holds(t); containers != 0 || volumes != 2 { // the files, and what the agent writes down
		t.Errorf("behind the daemon: %d containers, %d volumes", containers, volumes)
	}
	d = p.serve(t)
	a = p.client(t, d)
	if text, err := a.ReadFile(t.Context(), "kept", sandbox.ReadOptions{}); err != nil || text != "text" {
		t.Errorf("the next life: %q, %v", text, err)
	}
	if err := a.RemoveSandbox(t.Context(), "default", true); err != nil {
		t.Error(err)
	}
	if containers, volumes := e.holds(t); containers != 0 || volumes != 0 {
		t.Errorf("removed: %d containers, %d volumes", containers, volumes)
	}
}

// TestElsewhereIsRefused: what cannot be had of an engine that sees nothing of
// this machine, and a volume that a sandbox named.
func TestElsewhereIsRefused(t *testing.T) {
	e := newElsewhere(t)
	for name, c := range map[string]struct {
		box  sandboxhost.Box
		want sandbox.Kind
	}{
		"no image":           {sandboxhost.Box{}, sandbox.KindUnsupported},
		"the host's network": {sandboxhost.Box{Image: "small", Network: sandboxhost.NetworkHost}, sandbox.KindUnsupported},
		"an unknown image":   {sandboxhost.Box{Image: "127.0.0.1:1/none-such:1"}, sandbox.KindStartFailed},
	} {
		if _, err := newHostOf(t, e.driver(t), c.box).Backend(t.Context(), "acme", "default"); sandbox.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	state := filepath.Join(t.TempDir(), "state")
	dir := filepath.Join(state, "sandboxes", "acme", "default")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "volume")
	if err := errors.Join(os.WriteFile(file, []byte("another's"), 0o600), os.Chown(file, 1<<30+1000, 0)); err != nil {
		t.Fatal(err)
	}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: e.driver(t), Box: small, Limits: sandbox.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Backend(t.Context(), "acme", "default"); sandbox.KindOf(err) != sandbox.KindStartFailed {
		t.Errorf("a volume of a sandbox's choice: %v", err)
	}
	if containers, volumes := e.holds(t); containers != 0 || volumes != 0 {
		t.Errorf("%d containers, %d volumes are left", containers, volumes)
	}
}

// TestElsewhereLimits: P16.6. The engine says why a sandbox ended.
func TestElsewhereLimits(t *testing.T) {
	e := newElsewhere(t)
	parent := outer(t)
	d, err := docker.New(docker.Options{Engine: e.url, CgroupParent: parent, Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	h := newHostOf(t, d, sandboxhost.Box{Image: "small", Memory: boxMemory, Processes: boxProcesses, CPUs: boxCPUs})
	b, err := h.Backend(t.Context(), "acme", "default")
	if err != nil {
		t.Fatal(err)
	}
	awaitThrottled(t, b, parent)
	r, err := b.Exec(t.Context(), "dd if=/dev/zero of=/dev/null bs=256M count=1", sandbox.ExecOptions{Timeout: daemonTimeout})
	if (err != nil || r.ExitCode != 137) && sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("%+v, %v", r, err)
	}
}

// BenchmarkRelay: a file out of a sandbox of an engine elsewhere and into it,
// beside a bare exec of cat in the same one.
func BenchmarkRelay(b *testing.B) {
	e := newElsewhere(b)
	p := newPlace(b, []string{"--driver", "docker", "--engine", e.url, "--image", "small"})
	sb := p.client(b, p.serve(b))
	if _, err := sb.Exec(b.Context(), fmt.Sprintf("head -c %d /dev/zero >file", streamBytes), sandbox.ExecOptions{}); err != nil {
		b.Fatal(err)
	}
	c, err := client.New(client.WithHost(e.url))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.Run("down", func(b *testing.B) {
		medians(b, func() error { return down(sb) }, func() error { return bareCat(c, "cat file", false) })
	})
	b.Run("up", func(b *testing.B) {
		medians(b, func() error { return up(sb) }, func() error { return bareCat(c, fmt.Sprintf("head -c %d >bare && echo done", streamBytes), true) })
	})
}

// bareCat moves the bytes of the figures by an exec of the engine's.
func bareCat(c *client.Client, command string, up bool) error {
	ctx := context.Background()
	all, err := c.ContainerList(ctx, client.ContainerListOptions{})
	if err != nil || len(all.Items) != 1 {
		return fmt.Errorf("%d containers, %v", len(all.Items), err)
	}
	made, err := c.ExecCreate(ctx, all.Items[0].ID, client.ExecCreateOptions{
		User: "64000", WorkingDir: "/workspace", AttachStdin: up, AttachStdout: true, Cmd: []string{"sh", "-c", command},
	})
	if err != nil {
		return err
	}
	at, err := c.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer at.Close()
	want := int64(streamBytes)
	if up {
		want = int64(len("done\n"))
		if _, err := io.CopyBuffer(struct{ io.Writer }{at.Conn}, io.LimitReader(zero{}, streamBytes), make([]byte, 256<<10)); err != nil {
			return err
		}
	}
	n, err := stdcopy.StdCopy(io.Discard, io.Discard, at.Reader)
	if err == nil && n != want {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}
