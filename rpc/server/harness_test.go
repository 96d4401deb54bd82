package server_test

import (
	"context"
	"encoding/json"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server with one fake sandbox behind a real listener.
type rig struct {
	t      *testing.T
	fake   *fake
	server *server.Server
	addr   net.Addr
	cfg    server.Config
	epoch  chan struct{}
	// released counts the sessions that were given back.
	released  atomic.Int64
	releasing func()
	opening   chan struct{} // where set, Open waits for it
	extra     []string      // capabilities of the backend
}

// start starts a server; adjust may change its configuration.
func start(t *testing.T, adjust func(*server.Config)) *rig {
	t.Helper()
	g := &rig{t: t, fake: newFake(), epoch: make(chan struct{})}
	g.cfg = server.Config{
		Host:       g,
		ServerName: "controld/test",
		DataURLs:   func(net.Addr) []string { return []string{"tcp://:7072"} },
		Transfers:  transfer.NewTable(transfer.Config{}),
		Log:        func(string, ...any) {},
	}
	if adjust != nil {
		adjust(&g.cfg)
	}
	g.server = server.New(g.cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = ln.Addr()
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.server.Serve(context.Background(), ln, server.Control|server.Data)
	}()
	t.Cleanup(func() {
		g.server.Close()
		<-done
		g.cfg.Transfers.Close(&sandbox.Error{Kind: sandbox.KindUnavailable})
	})
	return g
}

// Open implements server.Host: the token is "good", the tenant "acme".
func (g *rig) Open(ctx context.Context, p rpc.HelloParams, _ server.Visitor) (*server.Session, error) {
	if g.opening != nil {
		select {
		case <-g.opening:
		case <-ctx.Done():
			return nil, sandbox.Cancelled(ctx, "hello", "")
		}
	}
	if p.Token == "panic" {
		panic("boom")
	}
	if p.Token != "good" || p.Tenant != "" && p.Tenant != "acme" || p.Sandbox == "forbidden" {
		return nil, &sandbox.Error{Kind: sandbox.KindUnauthenticated, Message: "wrong token"}
	}
	info := fakeInfo()
	info.Capabilities = append(info.Capabilities, g.extra...)
	return &server.Session{
		Tenant: "acme", Sandbox: p.Sandbox, Backend: g.fake, Info: info, Epoch: "e1", Closed: g.epoch,
		Release: func() {
			if g.releasing != nil {
				g.releasing()
			}
			g.released.Add(1)
		},
	}, nil
}

func (g *rig) dial() *raw {
	g.t.Helper()
	conn, err := net.DialTimeout("tcp", g.addr.String(), patience)
	if err != nil {
		g.t.Fatal(err)
	}
	return newRaw(g.t, conn)
}

const helloLine = `{"jsonrpc":"2.0","id":0,"method":"hello","params":{"protocol":1,"token":"good","client":"raw/1"}}`

// login dials and says hello.
func (g *rig) login() *raw {
	g.t.Helper()
	r := g.dial()
	if p := r.call(helloLine); p.Error != nil {
		g.t.Fatalf("hello: %+v", p.Error)
	}
	return r
}

// await waits for a command to have started.
func (g *rig) await(command string) {
	g.t.Helper()
	select {
	case got := <-g.fake.started:
		if got != command {
			g.t.Fatalf("%q started, want %q", got, command)
		}
	case <-time.After(patience):
		g.t.Fatalf("%q did not start", command)
	}
}

func decodeJSON(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %s", err, clip(text))
	}
}
