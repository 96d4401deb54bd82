package integration

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// exhausted checks a refusal over a tenant's limit.
func (r wireReply) exhausted(t *testing.T, limit int) {
	t.Helper()
	r.want(t, -32009, "resource_exhausted")
	if r.Error.Data["limit"] != float64(limit) || r.Error.Data["retry_after_s"] == nil {
		t.Errorf("limit %d: got %s", limit, r.line)
	}
}

// TestWireTooManyConnections: P15.1. One that is refused may stay and try
// again.
func TestWireTooManyConnections(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxConnections = 1 })
	first := d.login()
	second := d.dial()
	hello := obj{"protocol": 1, "token": wireSecret}
	second.call("hello", hello).exhausted(t, 1)
	d.login(obj{"token": wireOther})
	first.conn.Close()
	await(t, "the place of the first", func() bool { return second.call("hello", hello).Error == nil })
}

// TestWireTooManyCommands: P15.2 and P15.3, over all connections and sandboxes
// of a tenant.
func TestWireTooManyCommands(t *testing.T) {
	for _, tc := range []struct {
		name   string
		adjust func(*daemon.Config)
		stat   bool // whether that call still works
	}{
		{"commands", func(c *daemon.Config) { c.MaxExecs = 1 }, true},
		{"calls", func(c *daemon.Config) { c.MaxCalls = 1 }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := startWire(t, tc.adjust)
			a, b := d.login(), d.login(obj{"sandbox": "two"})
			running := a.send("exec", obj{"command": "echo > begun; sleep 300"})
			await(t, "the command", func() bool { _, err := os.Stat(d.path("begun")); return err == nil })
			b.call("exec", obj{"command": "true"}).exhausted(t, 1)
			if tc.stat {
				b.ok("stat", obj{"path": "."})
			} else {
				b.call("stat", obj{"path": "."}).exhausted(t, 1)
			}
			d.login(obj{"token": wireOther}).ok("exec", obj{"command": "true"})
			a.cancel(running)
			a.wait(running).want(t, -32800, "cancelled")
			await(t, "the place of the command", func() bool { return b.call("exec", obj{"command": "true"}).Error == nil })
		})
	}
}

// TestWireTooManyTokens: P15.4. What was claimed does not count.
func TestWireTooManyTokens(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxTokens = 1 })
	a, b := d.login(), d.login()
	k := a.mintWrite("f")
	b.call("write_file_stream", obj{"path": "g"}).exhausted(t, 1)
	d.login(obj{"token": wireOther}).mintWrite("f")
	k.open("")
	b.mintWrite("g")
}

// TestWireBytesPerSecond: P15.5. Two transfers at once have the rate between
// them; another tenant has its own.
func TestWireBytesPerSecond(t *testing.T) {
	const rate, size = 8 << 20, 4 << 20
	d := startWire(t, func(c *daemon.Config) { c.MaxBytesPerSecond = rate })
	c := d.login()
	d.put("f", strings.Repeat("x", size))
	began := time.Now()
	down := c.mintRead("f").open("")
	up := c.mintWrite("g")
	in := up.open("")
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(in, strings.Repeat("y", size))
		sent <- err
	}()
	if _, err := io.CopyN(io.Discard, down, size); err != nil {
		t.Fatal(err)
	}
	if r := up.commit(size); r.Error != nil || <-sent != nil {
		t.Fatalf("got %s", r.line)
	}
	// The burst of a sixteenth of a second is free.
	if took, least := time.Since(began), time.Second*(2*size-rate/16)/rate; took < least {
		t.Errorf("%d bytes took %v, less than %v", 2*size, took, least)
	}
}

// TestWireTenantsTakeTurns: P15.6 and P15.7. Many calls of a tenant that wait
// hold another's up no longer than a few of them take; what a turn is, the
// tests of fair, dataport and sandboxhost tell.
func TestWireTenantsTakeTurns(t *testing.T) {
	d := startWire(t, nil)
	many, few := d.login(), d.login(obj{"token": wireOther})
	for range 1000 {
		many.send("exec", obj{"command": "true"})
	}
	for range 5 {
		few.ok("exec", obj{"command": "true"})
	}
	before := len(many.kept)
	many.ok("ping", nil)
	if ended := len(many.kept) - before; ended > 500 {
		t.Errorf("five commands of one tenant waited for %d of another's 1,000", ended)
	}
	many.conn.Close()
}
