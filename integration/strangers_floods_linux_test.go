package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/strangers"
	"github.com/controld/controld/sandbox"
)

// cpu is how much time a process has computed.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestStrangersLeaveDescriptors: P13.8. With few descriptors 200 who wait take
// none of those that sessions need.
func TestStrangersLeaveDescriptors(t *testing.T) {
	p := newPlace(t)
	d := p.startBehind(t, "ulimit -n 64")
	sb := p.client(t, d)
	if _, err := sb.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &wireDaemon{t: t, ready: d.ready}
	for range 100 {
		w.connectFrom("127.9.0.1", d.ready.Control[0])
		w.connectFrom("127.9.0.2", d.ready.Data[0])
	}
	for range 20 {
		ran(t, sb, "cat /proc/version", sandbox.ExecOptions{})
		moves(t, sb)
	}
}

// TestOutOfDescriptors: P13.8. When there are none the daemon neither spins nor
// forgets its sessions, and goes on when there are some.
func TestOutOfDescriptors(t *testing.T) {
	p := newPlace(t)
	d := p.startBehind(t, "ulimit -n 64", "--traceable")
	w := &wireDaemon{t: t, ready: d.ready}
	w.cfg.StateDir = p.dir
	login := func(local string) *wireClient {
		conn := w.connectFrom(local, d.ready.Control[0])
		c := &wireClient{t: t, d: w, conn: conn, in: bufio.NewReader(conn), kept: map[string]wireReply{}}
		c.send("hello", obj{"protocol": 1, "token": p.secret})
		return c
	}
	first := login("127.0.0.1")
	first.wait("1")
	var more []*wireClient
	for !bytes.Contains(fdNames(t, d.ready.PID), []byte(" 63 ")) { // the last there is
		c := login("127.9.0.1")
		c.wait("1")
		more = append(more, c)
	}
	for range 200 { // who wait in the kernel
		more = append(more, login("127.9.0.1"))
	}
	before, began := cpu(t, d.ready.PID), time.Now()
	for time.Since(began) < 2*time.Second {
		first.ok("ping", nil)
		time.Sleep(50 * time.Millisecond)
	}
	spent, took := cpu(t, d.ready.PID)-before, time.Since(began)
	t.Logf("%v of CPU in %v without descriptors", spent, took)
	if spent > took/20 {
		t.Errorf("%v of CPU in %v: it spins", spent, took)
	}
	for _, c := range more {
		c.conn.Close()
	}
	began = time.Now()
	last := login("127.0.0.1")
	last.wait("1")
	t.Logf("accepted %v after descriptors were free", time.Since(began))
	first.ok("stat", obj{"path": "."})
}

// fdNames lists the descriptors of a process between spaces.
func fdNames(t *testing.T, pid int) []byte {
	t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	list := []byte(" ")
	for _, n := range names {
		list = append(append(list, n.Name()...), ' ')
	}
	return list
}

// resident is a figure of /proc/PID/status, in bytes.
func resident(t *testing.T, pid int, field string) int64 {
	t.Helper()
	n, err := check.Memory(pid, field)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStrangersFloodOfBytes: P13.9. Whatever is pushed at the ports, in whatever
// guise, is not kept.
func TestStrangersFloodOfBytes(t *testing.T) {
	const total, each = 1 << 30, 512 << 10
	p := newPlace(t)
	d := p.start(t)
	sb := p.client(t, d)
	if _, err := sb.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := resident(t, d.ready.PID, "VmRSS")
	junk := bytes.Repeat([]byte("x"), each)
	guises := strangers.Guises()
	for _, g := range guises { // each of 200 connections that dial again
		url := d.ready.Control[0]
		if g.Data {
			url = d.ready.Data[0]
		}
		_, addr, _ := strings.Cut(url, "://")
		var left atomic.Int64
		left.Store(int64(total / each / len(guises)))
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					strangers.Push(t.Context(), i, addr, g.Begin, junk, patience) // or not
				}
			})
		}
		all.Wait()
	}
	peak := resident(t, d.ready.PID, "VmHWM")
	t.Logf("%d MiB before, at most %d MiB", before>>20, peak>>20)
	if grown := peak - before; grown > 32<<20 {
		t.Errorf("grew by %d MiB", grown>>20)
	}
	if err := sb.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
