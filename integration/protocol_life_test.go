package integration

import (
	"os"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// TestWireMinterGone: P10.6, P10.8, P6.9, P11.9 and P8.17. What a connection
// minted dies with it; others of the same sandbox can ask, nobody else.
func TestWireMinterGone(t *testing.T) {
	d := startWire(t, nil)
	c, other := d.login(), d.login()
	k, fresh := c.mintWrite("f"), c.mintWrite("g")
	conn := k.open("data")
	elsewhere := []*wireClient{d.login(obj{"sandbox": "else"}), d.login(obj{"token": wireOther})}
	for _, stranger := range elsewhere {
		never := stranger.fails("transfer_result", obj{"id": "4f1a2f5e-0000-4000-8000-000000000000"}, -32003, "not_found")
		for _, method := range []string{"transfer_result", "transfer_abort"} {
			r := stranger.fails(method, obj{"id": k.id}, -32003, "not_found")
			if r.Error.Message != never.Error.Message && method == "transfer_result" {
				t.Fatalf("%q differs from %q", r.Error.Message, never.Error.Message)
			}
		}
		stranger.fails("transfer_commit", obj{"id": k.id, "bytes": 4}, -32003, "not_found")
	}
	waiting := other.send("transfer_result", obj{"id": k.id})
	other.ok("ping", nil)
	c.conn.Close()
	other.wait(waiting).want(t, -32008, "aborted").outcome(t, "none")
	conn.wasReset()
	fresh.c = other
	fresh.result().want(t, -32008, "aborted")
	fresh.refused()
	if names, err := os.ReadDir(d.path()); err != nil || len(names) > 0 {
		t.Fatalf("left: %v, %v", names, err)
	}
}

// TestWireOutcomesAreKept: P10.8 and P10.9.
func TestWireOutcomesAreKept(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.KeptOutcomes = 300 * time.Millisecond })
	c := d.login()
	k := c.mintWrite("f")
	k.open("x")
	k.commit(1)
	k.result()
	await(t, "the end of an outcome", func() bool {
		r := k.result()
		return r.Error != nil && r.Error.Data["kind"] == "not_found"
	})

	d = startWire(t, nil)
	c = d.login()
	var all []ticket
	for range 1025 {
		k := c.mintWrite("f")
		c.ok("transfer_abort", obj{"id": k.id})
		all = append(all, k)
	}
	all[0].result().want(t, -32003, "not_found")
	all[1].result().want(t, -32008, "aborted")
	all[1024].result().want(t, -32008, "aborted")
}

// TestWireTooManyTransfers: P10.10.
func TestWireTooManyTransfers(t *testing.T) {
	if n := daemon.Default().MaxTransfers; n != 1024 {
		t.Errorf("by default %d", n)
	}
	d := startWire(t, func(c *daemon.Config) { c.MaxTransfers = 2 })
	a, b := d.login(), d.login()
	k := a.mintWrite("f")
	b.mintWrite("f")
	r := b.fails("write_file_stream", obj{"path": "f"}, -32009, "resource_exhausted")
	if r.Error.Data["limit"] != 2.0 || r.Error.Data["retry_after_s"] == nil {
		t.Fatalf("got %s", r.line)
	}
	d.login(obj{"token": wireOther}).mintWrite("f")
	a.ok("transfer_abort", obj{"id": k.id})
	b.mintWrite("f")
}

// TestWireRestart: P10.11, P7.11 and P7.13. The files stay, the tokens, the ids
// and the epoch do not.
func TestWireRestart(t *testing.T) {
	d := startWire(t, nil)
	c := d.dial()
	hello := obj{"protocol": 1, "token": wireSecret}
	first := c.ok("hello", hello)
	if first.str("cwd") != d.path() {
		t.Fatalf("cwd %s, want %s", first.str("cwd"), d.path())
	}
	c.writeFile("f", "kept")
	k := c.mintRead("f")
	d.stop()
	next := runWire(t, d.cfg)
	c = next.dial()
	second := c.ok("hello", hello)
	if second.str("epoch") == first.str("epoch") || second.str("cwd") != first.str("cwd") {
		t.Fatalf("first %s, then %s", first.line, second.line)
	}
	k.c = c
	k.refused()
	k.result().want(t, -32003, "not_found")
	if r := c.ok("readdir", obj{"path": "."}); len(r.Result["entries"].([]any)) != 1 || c.read("f") != "kept" {
		t.Fatalf("got %s", r.line)
	}
}
