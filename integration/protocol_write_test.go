package integration

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// TestWireWriteOrders: P10.23, P10.22, P10.20, P8.17 and P11.8. The commit, the
// data connection and the data come in every order, with and without an end of
// the data. Nothing is seen before the commit, and the daemon closes behind it.
func TestWireWriteOrders(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	const content = "0123456789"
	for _, order := range []string{
		"commit open data", "open commit data", "open data commit",
		"open half commit rest", "commit open half rest", "open half rest commit",
		"open data eof commit", "open data commit eof", "commit open data eof", "open half commit rest eof",
		"whole commit", "commit whole", "whole eof commit",
	} {
		t.Run(order, func(t *testing.T) {
			d.put("f", "old")
			k := c.mintWrite("f")
			var conn *dataConn
			var commit string
			for step := range strings.FieldsSeq(order) {
				switch step {
				case "open":
					conn = k.open("")
				case "whole":
					conn = k.open(content)
				case "data":
					conn.send(content)
				case "half":
					conn.send(content[:5])
				case "rest":
					conn.send(content[5:])
				case "eof":
					conn.closeWrite()
				case "commit":
					if got := d.get("f"); got != "old" {
						t.Fatalf("%q before the commit", got)
					}
					commit = c.send("transfer_commit", obj{"id": k.id, "bytes": 10})
				}
			}
			r := c.wait(commit)
			if r.num("bytes") != 10 || r.str("etag") == "" || r.str("etag") != c.etag("f") || len(r.Result) != 2 {
				t.Fatalf("got %s", r.line)
			}
			if again := k.result(); again.num("bytes") != 10 || again.str("etag") != r.str("etag") {
				t.Fatalf("the result is %s, the commit's answer %s", again.line, r.line)
			}
			if rest := conn.all(); rest != "" || d.get("f") != content {
				t.Fatalf("got %q back, the file holds %q", rest, d.get("f"))
			}
		})
	}
	c.ok("rm", obj{"path": "f"})
	k := c.mintWrite("f")
	k.open(content)
	if names, err := os.ReadDir(d.path()); err != nil || len(names) != 0 {
		t.Fatalf("an upload shows as %v, %v", names, err)
	}
}

// TestWireWriteFailures: P10.24, P10.25, P10.26, P6.4, P11.9, P8.17.
func TestWireWriteFailures(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	for name, f := range map[string]func(t *testing.T, k ticket) (*dataConn, wireReply){
		"a byte more, then the commit": func(t *testing.T, k ticket) (*dataConn, wireReply) {
			conn := k.open("123456")
			return conn, k.commit(5).counts(t, 6, 5)
		},
		"the commit, then a byte more": func(t *testing.T, k ticket) (*dataConn, wireReply) {
			id := c.send("transfer_commit", obj{"id": k.id, "bytes": 5})
			conn := k.open("123456")
			return conn, c.wait(id).counts(t, 6, 5)
		},
		"more than nothing": func(t *testing.T, k ticket) (*dataConn, wireReply) {
			conn := k.open("1")
			return conn, k.commit(0).counts(t, 1, 0)
		},
		"an end, then the commit": func(t *testing.T, k ticket) (*dataConn, wireReply) {
			conn := k.open("123")
			conn.closeWrite()
			return conn, k.commit(5).counts(t, 3, 5)
		},
		"the commit, then an end": func(t *testing.T, k ticket) (*dataConn, wireReply) {
			id := c.send("transfer_commit", obj{"id": k.id, "bytes": 5})
			conn := k.open("123")
			conn.closeWrite()
			return conn, c.wait(id).counts(t, 3, 5)
		},
		"the commit, then a reset": func(t *testing.T, k ticket) (*dataConn, wireReply) {
			id := c.send("transfer_commit", obj{"id": k.id, "bytes": 5})
			k.open("123").reset()
			return nil, c.wait(id).want(t, -32008, "aborted").outcome(t, "none")
		},
		"a reset, then the commit": func(t *testing.T, k ticket) (*dataConn, wireReply) {
			k.open("123").reset()
			k.result().want(t, -32008, "aborted")
			return nil, k.commit(5).want(t, -32008, "aborted").outcome(t, "none")
		},
	} {
		t.Run(name, func(t *testing.T) {
			d.put("f", "old")
			k := c.mintWrite("f")
			conn, r := f(t, k)
			if conn != nil {
				conn.wasReset()
			}
			if again := k.result(); again.Error == nil || again.Error.Data["kind"] != r.Error.Data["kind"] {
				t.Fatalf("the result is %s", again.line)
			}
			k.refused()
			names, err := os.ReadDir(d.path())
			if d.get("f") != "old" || err != nil || len(names) != 1 {
				t.Fatalf("f holds %q beside %v, %v", d.get("f"), names, err)
			}
		})
	}
}

// counts wants truncated with these counts.
func (r wireReply) counts(t *testing.T, bytes, expected float64) wireReply {
	t.Helper()
	r.want(t, -32008, "truncated")
	if r.Error.Data["bytes"] != bytes || r.Error.Data["expected"] != expected {
		t.Fatalf("got %s, want %v of %v bytes", r.line, bytes, expected)
	}
	return r
}

func (r wireReply) outcome(t *testing.T, want string) wireReply {
	t.Helper()
	if r.Error.Data["outcome"] != want {
		t.Fatalf("got %s, want outcome %s", r.line, want)
	}
	return r
}

// TestWireWriteStalls: P10.27 and P10.45, for writes.
func TestWireWriteStalls(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.StallTimeout = 300 * time.Millisecond })
	c := d.login()
	ended, silent := c.mintWrite("f"), c.mintWrite("f")
	conn := ended.open("123")
	conn.closeWrite()
	silent.open("123")
	ended.result().want(t, -32008, "stalled")
	silent.result().want(t, -32008, "stalled")
	ended.commit(3).want(t, -32008, "stalled")
	conn.wasReset()
	if _, err := os.Stat(d.path("f")); err == nil {
		t.Fatal("a stalled write is visible")
	}
}

// TestWireCommitAgain: P10.28, P10.29 and P10.30.
func TestWireCommitAgain(t *testing.T) {
	d := startWire(t, nil)
	c, other := d.login(), d.login()
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("abc")))
	wrong := strings.Repeat("0", 64)

	k := c.mintWrite("f")
	k.open("abc")
	first := k.commit(3)
	again := other.ok("transfer_commit", obj{"id": k.id, "bytes": 3})
	if first.str("etag") == "" || again.str("etag") != first.str("etag") {
		t.Fatalf("first %s, again %s", first.line, again.line)
	}
	k.commit(4).want(t, -32602, "invalid_params")
	c.fails("transfer_commit", obj{"id": k.id, "bytes": 3, "sha256": sum}, -32602, "invalid_params")

	// The first to arrive is the first to count, however they run.
	k = c.mintWrite("f")
	ids := []string{c.send("transfer_commit", obj{"id": k.id, "bytes": 3})}
	for n := range 8 {
		ids = append(ids, c.send("transfer_commit", obj{"id": k.id, "bytes": 10 + n}))
	}
	for _, id := range ids[1:] {
		c.wait(id).want(t, -32602, "invalid_params")
	}
	k.open("abc")
	if r := c.wait(ids[0]); r.num("bytes") != 3 {
		t.Fatalf("got %s", r.line)
	}

	k = c.mint("write_file_stream", obj{"path": "f", "digest": "sha256"})
	k.open("abc")
	params := obj{"id": k.id, "bytes": 3, "sha256": sum}
	first = c.ok("transfer_commit", params)
	for _, r := range []wireReply{k.commit(3), other.call("transfer_commit", params)} {
		if r.str("etag") != first.str("etag") || r.num("bytes") != 3 {
			t.Fatalf("again: %s", r.line)
		}
	}
	c.fails("transfer_commit", obj{"id": k.id, "bytes": 3, "sha256": wrong}, -32602, "invalid_params")

	k = c.mint("write_file_stream", obj{"path": "f", "digest": "sha256"})
	k.open("abd")
	c.fails("transfer_commit", obj{"id": k.id, "bytes": 3, "sha256": sum}, -32008, "corrupt")
	if d.get("f") != "abc" {
		t.Fatalf("f holds %q", d.get("f"))
	}
	c.fails("transfer_commit", obj{"id": c.mintRead("f").id, "bytes": 3}, -32602, "invalid_params")
	c.fails("transfer_commit", obj{"id": "no id", "bytes": 3}, -32003, "not_found")
}

// TestWireAbort: P10.31.
func TestWireAbort(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	d.put("f", "old")
	abort := func(k ticket) wireReply { return c.call("transfer_abort", obj{"id": k.id}) }
	empty := func(r wireReply) {
		t.Helper()
		if r.Error != nil || len(r.Result) != 0 {
			t.Fatalf("got %s", r.line)
		}
	}
	for _, k := range []ticket{c.mintWrite("f"), c.mintRead("f")} {
		waiting := c.send("transfer_result", obj{"id": k.id})
		empty(abort(k))
		empty(abort(k))
		c.wait(waiting).want(t, -32008, "aborted").outcome(t, "none")
		k.refused()
	}
	k := c.mintWrite("f")
	conn := k.open("new")
	commit := c.send("transfer_commit", obj{"id": k.id, "bytes": 4})
	empty(abort(k))
	c.wait(commit).want(t, -32008, "aborted")
	conn.wasReset()
	if d.get("f") != "old" {
		t.Fatalf("f holds %q", d.get("f"))
	}
	k = c.mintWrite("f")
	k.open("new")
	k.commit(3)
	abort(k).want(t, -32006, "conflict")
	if d.get("f") != "new" {
		t.Fatalf("f holds %q", d.get("f"))
	}
	k = c.mintRead("f")
	k.open("").all()
	k.result()
	abort(k).want(t, -32006, "conflict")
	c.fails("transfer_abort", obj{"id": "no id"}, -32003, "not_found")
}

// TestWireCommitCancelled: P4.12. It is done often, because whoever ends the
// transfer must win against all that ends along with it.
func TestWireCommitCancelled(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	for range 30 {
		k := c.mintWrite("f")
		conn := k.open("ab")
		commit := c.send("transfer_commit", obj{"id": k.id, "bytes": 3})
		c.ok("ping", nil)
		c.cancel(commit)
		c.wait(commit).want(t, -32800, "cancelled")
		k.result().want(t, -32008, "aborted").outcome(t, "none")
		conn.wasReset()
		c.fails("stat", obj{"path": "f"}, -32003, "not_found")
	}
}

// TestWireTwoUploads: P10.41.
func TestWireTwoUploads(t *testing.T) {
	d := startWire(t, nil)
	a, b := d.login(), d.login()
	one, two := strings.Repeat("1", 1<<20), strings.Repeat("2", 1<<19)
	ka, kb := a.mintWrite("f"), b.mintWrite("f")
	ca, cb := ka.open(""), kb.open("")
	for i := range 16 {
		ca.send(one[i<<16 : (i+1)<<16])
		cb.send(two[i<<15 : (i+1)<<15])
	}
	if r := kb.commit(len(two)); r.Error != nil || d.get("f") != two {
		t.Fatalf("got %s", r.line)
	}
	if r := ka.commit(len(one)); r.Error != nil || d.get("f") != one {
		t.Fatalf("got %s", r.line)
	}
}
