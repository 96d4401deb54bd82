package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/rpc/server"
)

// TestReleaseComesLast: a session is given back when no call uses it.
func TestReleaseComesLast(t *testing.T) {
	g := start(t, nil)
	var ended atomic.Bool
	early := make(chan bool, 1)
	g.releasing = func() { early <- !ended.Load() }
	r := g.login()
	r.send(exec(1, "stubborn"))
	g.await("stubborn")
	r.conn.Close()
	select {
	case <-early:
		t.Fatal("released while a call runs")
	case <-time.After(50 * time.Millisecond):
	}
	ended.Store(true)
	close(g.fake.release)
	if <-early {
		t.Fatal("released while a call runs")
	}
}

func TestPanicInOpen(t *testing.T) {
	logged := make(chan string, 1)
	g := start(t, func(c *server.Config) {
		c.Log = func(m string, pairs ...any) { logged <- fmt.Sprint(m, pairs) }
	})
	r := g.dial()
	p := r.call(hello(`{"protocol":1,"token":"panic"}`))
	if p.kind() != "internal" || strings.Contains(<-logged, `"panic"`) {
		t.Fatalf("got %+v", p.Error)
	}
	r.closed()
	g.login()
}

// TestLongIDs holds P3.14.
func TestLongIDs(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	id := func(n int) string { return `"` + strings.Repeat("i", n-2) + `"` }
	r.expect(`{"jsonrpc":"2.0","id":`+id(64<<10)+`,"method":"ping"}`, id(64<<10), 0, "")
	r.expect(`{"jsonrpc":"2.0","id":`+id(64<<10+1)+`,"method":"ping"}`, "null", -32600, "invalid_request")
}

// TestErrorTooLarge: not even an error is longer than a message may be.
// Rules: P3.9.
func TestErrorTooLarge(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxMessageBytes = 64 << 10 })
	r := g.login()
	r.send(`{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":"` + strings.Repeat(`\u0001`, 10000) + `"}}`)
	line := r.line()
	if len(line) > 64<<10 || !strings.Contains(line, `"too_large"`) {
		t.Fatalf("%d bytes: %s", len(line), clip(line))
	}
}

// TestAbortsBounded: aborts wait for the verdicts of commits, so many at once.
// Rules: P4.4 and P10.32.
func TestAbortsBounded(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxWaitingTransfers = 2 })
	g.fake.commit = make(chan struct{})
	r := g.login()
	tk := r.mint("write_file_stream", "f")
	data, err := net.Dial("tcp", g.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	io.WriteString(data, "CTRLD1 "+tk.Token+"\nhello")
	io.ReadFull(data, make([]byte, 3))
	r.send(commitLine(2, tk))
	abort := `{"jsonrpc":"2.0","id":%d,"method":"transfer_abort","params":{"id":"` + tk.ID + `"}}`
	waitFor(t, func() bool { return g.fake.committing.Load() == 1 })
	r.send(fmt.Sprintf(abort, 3), fmt.Sprintf(abort, 4))
	r.expect(fmt.Sprintf(abort, 5), "5", -32009, "resource_exhausted")
	close(g.fake.commit)
	got := map[string]string{}
	for range 3 {
		p := r.reply()
		got[string(p.ID)] = p.kind()
	}
	if got["2"] != "" || got["3"] != "conflict" || got["4"] != "conflict" {
		t.Fatalf("got %v", got)
	}
}

// TestLingerEnds: who goes on sending behind a last answer is closed, after a
// time or an amount.
// Rules: P4.16.
func TestLingerEnds(t *testing.T) {
	tests := []struct {
		name   string
		linger time.Duration
		piece  int
		pause  time.Duration
	}{
		{"by time", 200 * time.Millisecond, 1, 5 * time.Millisecond},
		{"by amount", time.Hour, 64 << 10, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := start(t, func(c *server.Config) { c.LingerTime = tt.linger })
			r := g.dial()
			r.call(hello(`{"protocol":1,"token":"bad"}`))
			for begin := time.Now(); ; time.Sleep(tt.pause) {
				r.conn.SetWriteDeadline(time.Now().Add(patience))
				_, err := io.WriteString(r.conn, strings.Repeat("x", tt.piece))
				if errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) > 4*time.Second {
					t.Fatal("not closed") // sooner than the 5 s that a hello has
				}
				if err != nil {
					return
				}
			}
		})
	}
}

// poorListener fails as one does that has no descriptors left.
type poorListener struct {
	net.Listener
	failures atomic.Int64
}

func (l *poorListener) Accept() (net.Conn, error) {
	if n := l.failures.Add(1); n <= 3 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAcceptBacksOff(t *testing.T) {
	g := start(t, nil)
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	poor := &poorListener{Listener: ln}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	begin := time.Now()
	go func() { done <- g.server.Serve(ctx, poor, server.Control) }()
	conn, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	newRaw(t, conn).expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
	if d := time.Since(begin); d < 5*time.Millisecond+10*time.Millisecond+20*time.Millisecond {
		t.Fatalf("no backing off: %v", d)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	g.server.Close()
	if err := g.server.Serve(t.Context(), poor, server.Control); !errors.Is(err, server.ErrServerClosed) {
		t.Fatalf("got %v", err)
	}
}
