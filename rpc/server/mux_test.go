package server_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/controld/controld/rpc/server"
)

func (g *rig) loginMux() (*raw, *yamux.Session) {
	g.t.Helper()
	r := g.dial()
	p := r.call(hello(`{"protocol":1,"token":"good","mux":"yamux"}`))
	if p.Error != nil || p.text(g.t, "data") != `["tcp://:7072"]` {
		g.t.Fatalf("got %+v", p)
	}
	cfg := yamux.DefaultConfig()
	cfg.LogOutput, cfg.EnableKeepAlive = io.Discard, false
	session, err := yamux.Client(r.conn, cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { session.Close() })
	return r, session
}

func (g *rig) stream(s *yamux.Session) *raw {
	g.t.Helper()
	conn, err := s.OpenStream()
	if err != nil {
		g.t.Fatal(err)
	}
	return newRaw(g.t, conn)
}

// TestMux holds P2.6, P2.7, P2.8, P2.9, P2.10 and P2.11.
func TestMux(t *testing.T) {
	sessions := make(chan any, 4)
	g := start(t, func(c *server.Config) {
		c.Limits.MaxInflight, c.Limits.MaxQueued = 1, 1
		c.ServeData = func(_ context.Context, conn net.Conn, session any) {
			sessions <- session
			conn.Close()
		}
	})
	_, s := g.loginMux()
	a, b := g.stream(s), g.stream(s)
	b.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
	a.expect(helloLine, "0", -32600, "invalid_request")
	tk := a.mint("write_file_stream", "f")
	if len(tk.Endpoints) != 1 || tk.Endpoints[0] != "mux:" {
		t.Fatalf("endpoints %v", tk.Endpoints)
	}
	// Limits count the session as one connection.
	a.send(exec(1, "wait"))
	g.await("wait")
	b.send(exec(1, "wait")) // ids are each stream's own
	b.expect(exec(2, "wait"), "2", -32009, "resource_exhausted")
	g.stream(s).write("CTRLD1 ")
	if got := <-sessions; got == nil {
		t.Fatal("a stream is bound to no session")
	}
	x := g.stream(s)
	x.write("GET /")
	x.closed()
	// A transfer dies with the stream that minted it; a stream's end cancels
	// its calls and lets the others go on.
	a.conn.Close()
	g.await("wait") // b's call has the place now
	p := g.stream(s).call(`{"jsonrpc":"2.0","id":1,"method":"transfer_result","params":{"id":"` + tk.ID + `"}}`)
	if p.kind() != "aborted" {
		t.Fatalf("got %+v", p)
	}
	close(g.fake.release)
	if p := b.reply(); p.Error != nil {
		t.Fatalf("got %+v", p.Error)
	}
	s.Close()
	waitFor(t, func() bool { return g.released.Load() == 1 })
}

// TestMuxEpoch holds P7.12.
func TestMuxEpoch(t *testing.T) {
	g := start(t, nil)
	_, s := g.loginMux()
	a := g.stream(s)
	a.send(exec(1, "block"))
	g.await("block")
	close(g.epoch)
	if p := a.reply(); p.kind() != "unavailable" || p.Error.Data["reason"] != "sandbox_restarted" {
		t.Fatalf("got %+v", p.Error)
	}
	<-s.CloseChan()
}

// TestMuxStreamLimit holds P2.15.
func TestMuxStreamLimit(t *testing.T) {
	g := start(t, func(c *server.Config) { c.MaxStreams = 2 })
	_, s := g.loginMux()
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	a, b := g.stream(s), g.stream(s)
	a.expect(ping, "1", 0, "")
	b.expect(ping, "1", 0, "")
	c := g.stream(s)
	c.write(ping + "\n")
	c.closed()
	a.expect(ping, "1", 0, "")
}
