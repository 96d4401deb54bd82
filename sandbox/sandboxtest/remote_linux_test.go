package sandboxtest_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandbox/sandboxtest"
	"github.com/controld/controld/work"
)

// oneSandbox is a server.Host that lets everybody in to one backend.
type oneSandbox struct{ b sandbox.Backend }

func (h oneSandbox) Open(ctx context.Context, hello rpc.HelloParams, _ server.Visitor) (*server.Session, error) {
	info, err := h.b.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &server.Session{Tenant: "t", Sandbox: hello.Sandbox, Backend: h.b, Info: info, Epoch: info.Epoch}, nil
}

func newLocal(t *testing.T) sandbox.Backend {
	t.Helper()
	dir := t.TempDir()
	b, err := local.New(local.Options{DefaultCwd: filepath.Join(dir, "cwd"), StateDir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// newKeys is a server's memory of keys.
func newKeys(t *testing.T) *work.Keys {
	t.Helper()
	keys, err := work.NewKeys(work.KeysConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(keys.Close)
	return keys
}

// serve serves b on url and returns the adapter that sees it there.
func serve(t *testing.T, b sandbox.Backend, url string, mux bool) sandbox.Backend {
	t.Helper()
	return serveWith(t, b, url, server.Config{}, adapter.Options{Mux: mux})
}

// servePassing is serve on a Unix socket over which files change hands.
func servePassing(t *testing.T, b sandbox.Backend) sandbox.Backend {
	t.Helper()
	url := "unix://" + filepath.Join(t.TempDir(), "s")
	return serveWith(t, b, url, server.Config{PassFiles: &dataport.PassRules{}}, adapter.Options{PassFiles: true})
}

func serveWith(t *testing.T, b sandbox.Backend, url string, cfg server.Config, opts adapter.Options) sandbox.Backend {
	t.Helper()
	e, err := dataport.ParseEndpoint(url)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := dataport.Listen(e, dataport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if addr, ok := ln.Addr().(*net.TCPAddr); ok {
		e.Port = uint32(addr.Port)
	}
	cfg.Host, cfg.Keys, cfg.DataURLs = oneSandbox{b}, newKeys(t), func(net.Addr) []string { return []string{e.String()} }
	srv := server.New(cfg)
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(context.Background(), ln, server.Control|server.Data) })
	opts.Control, opts.Token = e.String(), "x"
	a, err := adapter.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		srv.Close()
		serving.Wait()
	})
	return a
}

// servePipe serves b over pipes in memory, one a connection, by a server that
// knows no keys.
func servePipe(t *testing.T, b sandbox.Backend) sandbox.Backend {
	t.Helper()
	srv := server.New(server.Config{Host: oneSandbox{b}, DataURLs: func(net.Addr) []string { return []string{"unix:///pipe"} }})
	var serving sync.WaitGroup
	a, err := adapter.New(adapter.Options{
		Control: "unix:///pipe", Token: "x",
		Dial: func(context.Context, dataport.Endpoint) (net.Conn, error) {
			near, far := net.Pipe()
			serving.Go(func() { srv.ServeConn(context.Background(), far, server.Control|server.Data) })
			return near, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		srv.Close()
		serving.Wait()
	})
	return a
}

func TestTCP(t *testing.T) { sandboxtest.Run(t, serve(t, newLocal(t), "tcp://127.0.0.1:0", false)) }

func TestUnix(t *testing.T) {
	sandboxtest.Run(t, serve(t, newLocal(t), "unix://"+filepath.Join(t.TempDir(), "s"), false))
}

func TestMux(t *testing.T) { sandboxtest.Run(t, serve(t, newLocal(t), "tcp://127.0.0.1:0", true)) }

func TestPipe(t *testing.T) { sandboxtest.Run(t, servePipe(t, newLocal(t))) }

func TestTwoHops(t *testing.T) {
	inner := serve(t, newLocal(t), "unix://"+filepath.Join(t.TempDir(), "s"), false)
	sandboxtest.Run(t, serve(t, inner, "tcp://127.0.0.1:0", false))
}

// TestPassedFiles moves streams as files that change hands.
func TestPassedFiles(t *testing.T) { sandboxtest.Run(t, servePassing(t, newLocal(t))) }

// TestTwoHopsPassedFiles is a daemon in front of an agent.
func TestTwoHopsPassedFiles(t *testing.T) {
	sandboxtest.Run(t, serve(t, servePassing(t, newLocal(t)), "tcp://127.0.0.1:0", false))
}

func TestSuiteIsLargeEnough(t *testing.T) {
	if n := sandboxtest.Count(); n < 150 {
		t.Fatalf("%d checks", n)
	}
}
