package server_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/rpc/server"
)

func hello(params string) string {
	return `{"jsonrpc":"2.0","id":0,"method":"hello","params":` + params + `}`
}

// TestHelloRetries holds P7.1, P7.4, P7.5, P7.6, P7.8, P7.9 and P3.23.
func TestHelloRetries(t *testing.T) {
	tests := []struct {
		name, line, id string
		code           int
		kind           string
	}{
		{"ping", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, ""},
		{"other method", `{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":"x"}}`, "1", -32001, "unauthenticated"},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"nope"}`, "1", -32001, "unauthenticated"},
		{"no token", hello(`{"protocol":1}`), "0", -32602, "invalid_params"},
		{"no protocol", hello(`{"token":"good"}`), "0", -32602, "invalid_params"},
		{"protocol string", hello(`{"protocol":"1","token":"good"}`), "0", -32602, "invalid_params"},
		{"token number", hello(`{"protocol":1,"token":5}`), "0", -32602, "invalid_params"},
		{"token twice", hello(`{"protocol":1,"token":"good","token":"good"}`), "0", -32602, "invalid_params"},
		{"positional", hello(`[1,"good"]`), "0", -32602, "invalid_params"},
		{"sandbox name", hello(`{"protocol":1,"token":"good","sandbox":"-a"}`), "0", -32602, "invalid_params"},
		{"sandbox empty", hello(`{"protocol":1,"token":"good","sandbox":""}`), "0", -32602, "invalid_params"},
		{"sandbox long", hello(`{"protocol":1,"token":"good","sandbox":"` + strings.Repeat("a", 64) + `"}`), "0", -32602, "invalid_params"},
		{"unknown mux", hello(`{"protocol":1,"token":"good","mux":"spdy"}`), "0", -32600, "invalid_request"},
		{"notification", `{"jsonrpc":"2.0","method":"hello","params":{"protocol":1,"token":"good"}}`, "null", -32600, "invalid_request"},
	}
	g := start(t, nil)
	r := g.dial()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			(&raw{t, r.conn, r.in}).expect(tt.line, tt.id, tt.code, tt.kind)
		})
	}
	r.send(`[` + helloLine + `]`)
	var batch []reply
	r.parse(r.line(), &batch)
	if len(batch) != 1 || batch[0].code() != -32600 {
		t.Fatalf("hello in a batch: %+v", batch)
	}
	p := r.call(hello(`{"protocol":1,"token":"good","tenant":"acme","sandbox":"box-1","future":{"x":[1]}}`))
	for field, want := range map[string]string{
		"protocol": "1", "server": `"controld/test"`, "epoch": `"e1"`, "tenant": `"acme"`, "sandbox": `"box-1"`,
		"cwd": `"/w"`, "data": `["tcp://:7072"]`, "capabilities": `["exec","batch","mux"]`,
	} {
		if got := p.text(t, field); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
	var limits map[string]float64
	decodeJSON(t, p.text(t, "limits"), &limits)
	for name, want := range map[string]float64{
		"max_message_bytes": 33554432, "max_inflight": 128, "max_queued": 1024, "max_waiting_transfers": 1024,
		"max_batch": 64, "max_depth": 64, "max_buffered_bytes": 16777216, "max_output_bytes": 8388608,
		"max_buffered_inflight_bytes": 134217728, "write_timeout_s": 30, "token_ttl_s": 30, "stall_timeout_s": 600,
		"kept_outcomes_s": 60,
	} {
		if limits[name] != want {
			t.Errorf("%s is %v, want %v", name, limits[name], want)
		}
	}
}

// TestHelloCloses holds P7.2, P7.3 and P4.16.
func TestHelloCloses(t *testing.T) {
	tests := []struct {
		name, params string
		code         int
		kind         string
	}{
		{"wrong token", `{"protocol":1,"token":"bad"}`, -32001, "unauthenticated"},
		{"wrong tenant", `{"protocol":1,"token":"good","tenant":"other"}`, -32001, "unauthenticated"},
		{"sandbox not covered", `{"protocol":1,"token":"good","sandbox":"forbidden"}`, -32001, "unauthenticated"},
		{"protocol 2", `{"protocol":2,"token":"good"}`, -32010, "unsupported"},
		{"protocol 2 with other types", `{"token":{"new":1},"protocol":2,"sandbox":[]}`, -32010, "unsupported"},
		{"protocol beyond numbers", `{"protocol":1e400}`, -32010, "unsupported"},
	}
	g := start(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := g.dial()
			r.t = t
			// The line behind it must not be answered, nor reset the answer.
			r.send(hello(tt.params), `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			p := r.reply()
			if p.code() != tt.code || p.kind() != tt.kind {
				t.Fatalf("got %d %s", p.code(), p.kind())
			}
			if tt.kind == "unsupported" {
				if got, _ := p.Error.Data["protocols"].([]any); len(got) != 1 || got[0] != 1.0 {
					t.Fatalf("protocols %v", p.Error.Data["protocols"])
				}
			}
			r.closed()
		})
	}
}

// TestHelloDeadline keeps pinging; the connection closes all the same.
// Rules: P3.5.
func TestHelloDeadline(t *testing.T) {
	g := start(t, func(c *server.Config) { c.HelloTimeout = 200 * time.Millisecond })
	r := g.dial()
	begin := time.Now()
	for {
		r.conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(r.conn, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
			break
		}
		if _, err := r.in.ReadString('\n'); err != nil {
			break
		}
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Fatalf("closed after %v", d)
	}
	silent := g.dial()
	silent.closed()
}

// TestHelloDeadlineDuringOpen holds P7.14.
func TestHelloDeadlineDuringOpen(t *testing.T) {
	g := start(t, func(c *server.Config) { c.HelloTimeout = 200 * time.Millisecond })
	g.opening = make(chan struct{})
	r := g.dial()
	r.send(helloLine)
	r.conn.SetReadDeadline(time.Now().Add(patience))
	io.ReadAll(r.in) // closed, perhaps behind an answer
}

// TestLinesBehindHello are long and wait for its answer.
// Rules: P3.6.
func TestLinesBehindHello(t *testing.T) {
	g := start(t, nil)
	g.opening = make(chan struct{})
	r := g.dial()
	r.send(helloLine, `{"jsonrpc":"2.0","id":1,"method":"ping","x":"`+strings.Repeat("a", 64<<10)+`"}`)
	close(g.opening)
	if p := r.reply(); string(p.ID) != "0" || p.Error != nil {
		t.Fatalf("first answer is %s %v", p.ID, p.Error)
	}
	if p := r.reply(); string(p.ID) != "1" || p.Error != nil {
		t.Fatalf("second answer is %s %v", p.ID, p.Error)
	}
}

// TestHelloLineLimit holds P3.4.
func TestHelloLineLimit(t *testing.T) {
	g := start(t, nil)
	pad := func(n int) string {
		line := `{"jsonrpc":"2.0","id":1,"method":"ping","x":""}`
		return strings.Replace(line, `""`, `"`+strings.Repeat("a", n-len(line))+`"`, 1)
	}
	r := g.dial()
	r.expect(pad(16<<10), "1", 0, "")
	r.send(pad(16<<10+1) + strings.Repeat("z", 100<<10))
	if p := r.reply(); p.code() != -32600 || p.kind() != "message_too_large" || string(p.ID) != "null" {
		t.Fatalf("got %+v", p)
	}
	r.closedCleanly()
}

// TestFirstByte holds P2.1, P2.2 and P2.3.
func TestFirstByte(t *testing.T) {
	data := make(chan byte, 8)
	g := start(t, func(c *server.Config) {
		c.ServeData = func(_ context.Context, conn net.Conn, session any) {
			var b [1]byte
			io.ReadFull(conn, b[:])
			if _, bare := conn.(*net.TCPConn); !bare || session != nil {
				b[0] = '!'
			}
			data <- b[0]
			conn.Close()
		}
	})
	for _, first := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01", "c", "x", "\x00", "\ufeff{}"} {
		r := g.dial()
		r.write(first)
		r.closed()
	}
	for _, first := range []string{" ", "\t", "\r", "\n", ""} {
		g.dial().expect(first+`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
	}
	g.dial().write("CTRLD1 ")
	if b := <-data; b != 'C' {
		t.Fatalf("the data plane got %q", b)
	}
}

// TestWrongPlane holds P2.4.
func TestWrongPlane(t *testing.T) {
	g := start(t, func(c *server.Config) {
		c.ServeData = func(_ context.Context, conn net.Conn, _ any) { conn.Close() }
	})
	serve := func(planes server.Planes) *raw {
		here, there := net.Pipe()
		go g.server.ServeConn(context.Background(), there, planes)
		return newRaw(t, here)
	}
	r := serve(server.Control)
	r.write("C")
	r.closed()
	r = serve(server.Data)
	r.write("{")
	r.closed()
	serve(server.Control).expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
}
