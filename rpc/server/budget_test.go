package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/rpc/server"
)

func write(id, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"write_file","params":{"path":"w%d","content":{"text":"%s"}}}`,
		id, id, strings.Repeat("a", n))
}

// TestBudgetReadWaits: a read that does not fit waits until it does, and other
// connections of the tenant share the budget.
// Rules: P5.10.
func TestBudgetReadWaits(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxBufferedInflightBytes = 100 << 10 })
	g.fake.writes = make(chan string, 10)
	g.fake.put("f", make([]byte, 60<<10))
	a, b := g.login(), g.login()
	a.send(write(1, 50<<10))
	<-g.fake.writes
	b.send(`{"jsonrpc":"2.0","id":2,"method":"read_file","params":{"path":"f"}}`)
	b.expect(`{"jsonrpc":"2.0","id":3,"method":"ping"}`, "3", 0, "")
	b.expect(exec(4, "echo x"), "4", 0, "")
	b.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if line, err := b.in.ReadString('\n'); err == nil {
		t.Fatalf("the read did not wait: %s", clip(line))
	}
	close(g.fake.release)
	if p := a.reply(); p.Error != nil {
		t.Fatalf("got %+v", p.Error)
	}
	if p := b.reply(); p.Error != nil || string(p.ID) != "2" {
		t.Fatalf("got %+v", p)
	}
	// A waiting read can be cancelled, and gives its turn on.
	b.expect(`{"jsonrpc":"2.0","id":5,"method":"read_file","params":{"path":"f"}}`, "5", 0, "")
}

// TestBudgetCancelledWait: who gives up waiting leaves nothing behind.
// Rules: P5.10, P4.8 and P4.9.
func TestBudgetCancelledWait(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxBufferedInflightBytes = 100 << 10 })
	g.fake.writes = make(chan string, 10)
	g.fake.put("f", make([]byte, 60<<10))
	r := g.login()
	r.send(write(1, 50<<10))
	<-g.fake.writes
	r.send(`{"jsonrpc":"2.0","id":2,"method":"read_file","params":{"path":"f"}}`, write(3, 60<<10), cancelLine("2"), cancelLine("3"))
	for range 2 {
		if p := r.reply(); p.code() != -32800 {
			t.Fatalf("got %+v", p)
		}
	}
	close(g.fake.release)
	r.reply()
	for i := range 5 {
		r.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"read_file","params":{"path":"f"}}`, i), fmt.Sprint(i), 0, "")
	}
}

// TestBudgetWritesWaitBounded: writes wait for the budget, up to the text
// that a connection may have waiting.
// Rules: P5.11 and P4.2.
func TestBudgetWritesWaitBounded(t *testing.T) {
	g := start(t, func(c *server.Config) {
		c.Limits.MaxBufferedInflightBytes, c.Limits.MaxMessageBytes = 64<<10, 128<<10
	})
	g.fake.writes = make(chan string, 10)
	r := g.login()
	r.send(write(1, 50<<10), write(2, 50<<10), write(3, 50<<10), write(4, 50<<10))
	if p := r.reply(); string(p.ID) != "4" || p.kind() != "resource_exhausted" {
		t.Fatalf("got %+v", p)
	}
	close(g.fake.release)
	for range 3 {
		if p := r.reply(); p.Error != nil {
			t.Fatalf("got %+v", p.Error)
		}
	}
}

// TestBudgetExec: output that does not fit is counted as omitted, whether the
// backend asks while it grows or not.
// Rules: P5.12.
func TestBudgetExec(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxBufferedInflightBytes = 100 << 10 })
	g.fake.writes = make(chan string, 10)
	a, b := g.login(), g.login()
	a.send(write(1, 60<<10))
	<-g.fake.writes
	for i, command := range []string{"out 50000", "grow 50000"} {
		var kept, omitted int
		// What the one before held is given back a moment behind its answer.
		waitFor(t, func() bool {
			kept, omitted = outputOf(t, b.call(exec(i, command)))
			return kept >= 38<<10
		})
		if kept+omitted != 50000 || kept > 40<<10 {
			t.Fatalf("%s: kept %d, omitted %d", command, kept, omitted)
		}
	}
	close(g.fake.release)
	a.reply()
	for i := range 5 {
		// All of it is given back, a moment behind the answer.
		waitFor(t, func() bool {
			_, omitted := b.call(exec(i, "grow 90000")).Result["stdout_omitted"]
			return !omitted
		})
	}
}

// outputOf returns how much of an output an answer holds, and how much not.
func outputOf(t *testing.T, p reply) (kept, omitted int) {
	t.Helper()
	var text struct{ Text, Base64 string }
	decodeJSON(t, p.text(t, "stdout"), &text)
	kept = len(text.Text)
	if text.Base64 != "" {
		var out struct{ Base64 []byte }
		decodeJSON(t, `{"base64":"`+text.Base64+`"}`, &out)
		kept = len(out.Base64)
	}
	if raw, ok := p.Result["stdout_omitted"]; ok {
		decodeJSON(t, string(raw), &omitted)
	}
	return kept, omitted
}

// TestUnreadReplies: a peer that does not read stops being read, and is cut
// off after the write timeout.
// Rules: P4.6 and P4.7.
func TestUnreadReplies(t *testing.T) {
	g := start(t, func(c *server.Config) {
		c.Limits.WriteTimeout = 3 * time.Second
		c.UnreadReplies = 64 << 10
	})
	g.fake.put("f", make([]byte, 4<<10))
	var lines bytes.Buffer // far more than the kernel takes
	for id := range 500_000 {
		fmt.Fprintf(&lines, `{"jsonrpc":"2.0","id":%d,"method":"read_file","params":{"path":"f"}}`+"\n", id)
	}
	r := g.login()
	r.conn.(interface{ SetReadBuffer(int) error }).SetReadBuffer(4 << 10)
	r.conn.SetWriteDeadline(time.Now().Add(patience))
	n, err := r.conn.Write(lines.Bytes())
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || n > lines.Len()/2 {
		t.Fatalf("the server took %d bytes of %d, then %v", n, lines.Len(), err)
	}
	waitFor(t, func() bool { return g.released.Load() == 1 })
}

// TestSlowReader: a peer that reads slowly, but reads, is not cut off.
// Rules: P4.7.
func TestSlowReader(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.WriteTimeout = 2 * time.Second })
	r := g.login()
	r.conn.(interface{ SetReadBuffer(int) error }).SetReadBuffer(64 << 10)
	g.fake.put("f", make([]byte, 12<<20))
	r.send(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"f"}}`)
	total, buf := 0, make([]byte, 1<<20)
	for total < 16<<20 {
		r.conn.SetReadDeadline(time.Now().Add(patience))
		n, err := r.in.Read(buf)
		if err != nil {
			t.Fatalf("cut off after %d bytes: %v", total, err)
		}
		total += n
		time.Sleep(time.Duration(n) * time.Second / (4 << 20)) // 4 MB/s: the test is about a slow peer
	}
}
