package integration

import (
	"context"
	"crypto/sha256"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/controld/controld/sandboxhost/agent"
	"github.com/controld/controld/sandboxhost/daemon"
)

// TestWireHello: P7.4, P7.8, P7.9, P7.10, P7.13 and P5.8.
func TestWireHello(t *testing.T) {
	d := startWire(t, nil)
	c := d.dial()
	r := c.ok("hello", obj{"protocol": 1.0, "token": wireSecret, "client": "wire/1", "tenant": "acme", "not yet invented": []int{1}})
	for field, want := range map[string]any{"protocol": 1.0, "server": "controld/test", "tenant": "acme", "sandbox": "default", "cwd": d.path()} {
		if r.Result[field] != want {
			t.Errorf("%s is %v, want %v", field, r.Result[field], want)
		}
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(r.str("epoch")) {
		t.Errorf("epoch %q", r.str("epoch"))
	}
	var caps []string
	for _, name := range r.Result["capabilities"].([]any) {
		caps = append(caps, name.(string))
	}
	slices.Sort(caps)
	if want := []string{"batch", "digest", "exec", "if_match", "keys", "mux", "sandboxes", "scope", "sync"}; !slices.Equal(caps, want) {
		t.Errorf("capabilities %v, want %v", caps, want)
	}
	limits := r.Result["limits"].(obj)
	for name, want := range map[string]any{
		"max_message_bytes": 33554432.0, "max_inflight": 128.0, "max_queued": 1024.0, "max_waiting_transfers": 1024.0,
		"max_batch": 64.0, "max_depth": 64.0, "max_buffered_bytes": 16777216.0, "max_output_bytes": 8388608.0,
		"max_buffered_inflight_bytes": 134217728.0, "write_timeout_s": 30.0, "token_ttl_s": 30.0, "stall_timeout_s": 600.0,
		"kept_outcomes_s": 60.0, "reconnect_grace_s": 30.0, "kept_keys_s": 86400.0,
	} {
		if limits[name] != want {
			t.Errorf("%s is %v, want %v", name, limits[name], want)
		}
	}
	if names, err := os.ReadDir(d.path()); err != nil || len(names) != 0 {
		t.Errorf("a new sandbox holds %v, %v", names, err)
	}
	box := d.login(obj{"sandbox": "0-new"})
	box.writeFile("f", "x")
	if _, err := os.Stat(filepath.Join(d.cfg.StateDir, "sandboxes", "acme", "0-new", "f")); err != nil {
		t.Error(err)
	}
	c.fails("stat", obj{"path": "f"}, -32003, "not_found")
}

// TestWireHelloRefused: P7.1, P7.2, P7.3, P7.5 and P7.6, with the daemon's own
// tokens.
func TestWireHelloRefused(t *testing.T) {
	d := startWire(t, nil)
	for name, params := range map[string]obj{
		"wrong token":     {"protocol": 1, "token": wireSecret[:42]},
		"empty token":     {"protocol": 1, "token": ""},
		"another tenant":  {"protocol": 1, "token": wireSecret, "tenant": "other"},
		"another sandbox": {"protocol": 1, "token": wireBoxOnly, "sandbox": "default"},
		"default sandbox": {"protocol": 1, "token": wireBoxOnly},
	} {
		t.Run(name, func(t *testing.T) {
			c := d.dial()
			r := c.fails("hello", params, -32001, "unauthenticated")
			if r.Error.Message != "hello: the token does not open this" {
				t.Fatalf("got %s", r.line)
			}
			c.closed()
		})
	}
	c := d.dial()
	c.ok("ping", nil)
	c.fails("stat", obj{"path": "."}, -32001, "unauthenticated")
	c.fails("hello", obj{"protocol": 1, "token": wireSecret, "sandbox": "Box"}, -32602, "invalid_params")
	c.fails("hello", obj{"protocol": 1, "token": wireSecret, "mux": ""}, -32602, "invalid_params")
	c.fails("hello", obj{"protocol": 1, "token": wireSecret, "mux": "h2"}, -32600, "invalid_request")
	if r := c.ok("hello", obj{"protocol": 1, "token": wireBoxOnly, "sandbox": "box"}); r.str("sandbox") != "box" {
		t.Fatalf("got %s", r.line)
	}
	c.fails("hello", obj{"protocol": 1, "token": wireSecret}, -32600, "invalid_request")
	c.fails("hello", obj{"protocol": "x"}, -32600, "invalid_request")
	old := d.dial()
	r := old.fails("hello", obj{"protocol": 2, "token": 5}, -32010, "unsupported")
	if list, _ := r.Error.Data["protocols"].([]any); len(list) != 1 || list[0] != 1.0 {
		t.Fatalf("got %s", r.line)
	}
	old.closed()
}

// TestWireHelloAgain: P7.7. Too many connections is no reason to close.
func TestWireHelloAgain(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxConnections = 1 })
	first := d.login()
	second := d.dial()
	hello := obj{"protocol": 1, "token": wireSecret}
	second.fails("hello", hello, -32009, "resource_exhausted")
	second.ok("ping", nil)
	first.conn.Close()
	await(t, "a place", func() bool {
		r := second.call("hello", hello)
		return r.Error == nil
	})
	second.ok("stat", obj{"path": "."})
}

// TestWireLines: P3.1, P3.2, P3.15 and P5.6.
func TestWireLines(t *testing.T) {
	d := startWire(t, nil)
	c := d.dial()
	c.write("\n \t\r\n\r\n" + ` {"jsonrpc" : "2.0", "id":7,` + "\t" + `"method":"ping"}` + " \r\n\n")
	if r := c.wait("7"); r.Error != nil {
		t.Fatalf("got %s", r.line)
	}
	c.ok("hello", obj{"protocol": 1, "token": wireSecret})
	c.writeFile("lines", "a\nb\r\n")
	if r := c.ok("read_file", obj{"path": "lines"}); strings.Count(r.line, "\n") != 1 || r.content(t, "content") != "a\nb\r\n" {
		t.Fatalf("got %q", r.line)
	}
	c.write(`{"jsonrpc":"2.0","id":8,"method":"ping"}` + "\n")
	c.wait("8")
	for _, params := range []string{"null", "5", `"x"`, "[]", "true"} {
		c.write(`{"jsonrpc":"2.0","id":9,"method":"ping","params":` + params + "}\n")
		c.wait("9").want(t, -32602, "invalid_params")
	}
	if r := c.sh("true", obj{"timeout_s": 0.5e2, "kill_grace_s": 0}); r.num("exit_code") != 0 {
		t.Fatalf("got %s", r.line)
	}
}

// TestWireUnixSockets: P1.2, P1.3 and P2.1. Both planes work over Unix sockets.
func TestWireUnixSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/c", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	d := startWire(t, func(c *daemon.Config) {
		c.Control, c.Data = []string{"unix://" + dir + "/c"}, []string{"unix://" + dir + "/d"}
	})
	for _, name := range []string{"c", "d"} {
		if info, err := os.Stat(dir + "/" + name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	c := d.login()
	k := c.mintWrite("f")
	k.open("over unix")
	if r := k.commit(9); r.num("bytes") != 9 {
		t.Fatalf("got %s", r.line)
	}
	if got := c.mintRead("f").open("").all(); got != "over unix" {
		t.Fatalf("got %q", got)
	}
	second := wireConfig(t)
	second.Control = d.cfg.Control
	run, err := daemon.New(second, daemon.Options{Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Run(context.Background()); err == nil {
		t.Fatal("a second daemon took the socket of a living one")
	}
	d.login()
}

// TestWireEndpoints: P1.2, P1.4 and P1.5.
func TestWireEndpoints(t *testing.T) {
	for url, good := range map[string]bool{
		"tcp://127.0.0.1:1": true, "tcp://[::1]:1": true, "tls://h:1": true, "unix:///p%20q": true, "vsock://3:1": true, "vsock://:1": true,
		"hybrid-vsock:///p:1": true, "tcp://0.0.0.0:1": false, "tcp://:1": false, "tcp://10.0.0.1:1": false,
		"http://127.0.0.1:1": false, "127.0.0.1:1": false, "tcp://127.0.0.1": false, "tcp://127.0.0.1:65536": false,
		"unix://p": false, "vsock://x:1": false, "hybrid-vsock:///p": false, "": false,
	} {
		cfg := daemon.Default()
		cfg.Tokens = "x"
		for _, field := range []*[]string{&cfg.Control, &cfg.Data} {
			old := *field
			*field = []string{url}
			if err := cfg.Check(); (err == nil) != good {
				t.Errorf("%q: %v", url, err)
			}
			*field = old
		}
	}
	named := []string{"tcp://gate.example:9", "tls://gate.example:10", "unix:///x"}
	for name, adjust := range map[string]func(c *daemon.Config){
		"wildcard": func(c *daemon.Config) { c.Data, c.Insecure = []string{"tcp://0.0.0.0:0"}, true },
		"named":    func(c *daemon.Config) { c.AdvertiseData = named },
	} {
		t.Run(name, func(t *testing.T) {
			d := startWire(t, adjust)
			want := named
			if name == "wildcard" {
				_, port, _ := net.SplitHostPort(strings.TrimPrefix(d.ready.Data[0], "tcp://"))
				want = []string{"tcp://:" + port}
			}
			c := d.dial()
			r := c.ok("hello", obj{"protocol": 1, "token": wireSecret})
			tr := c.mintWrite("f").minted.Result["transfer"].(obj)
			for _, list := range []any{r.Result["data"], tr["endpoints"]} {
				var got []string
				for _, u := range list.([]any) {
					got = append(got, u.(string))
				}
				if !slices.Equal(got, want) {
					t.Errorf("told %v, want %v", got, want)
				}
			}
		})
	}
}

// TestWireAgent: P2.5 and P7.17. An agent takes both planes on one address, and
// says that commands are of its own user.
func TestWireAgent(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	a := agent.Agent{Listen: "tcp://127.0.0.1:0", SecretSHA256: sha256.Sum256([]byte(wireSecret)), Cwd: t.TempDir(), Version: "test", Traceable: true,
		Ready: func(url string) { ready <- url }}
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	d := &wireDaemon{t: t}
	select {
	case url := <-ready:
		d.ready.Control, d.ready.Data = []string{url}, []string{url}
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	c := d.dial()
	hello := c.ok("hello", obj{"protocol": 1, "token": wireSecret})
	if caps := hello.Result["capabilities"].([]any); !slices.Contains(caps, "shared_user") {
		t.Errorf("capabilities %v", caps)
	}
	k := c.mintWrite("f")
	k.open("both")
	if r := k.commit(4); r.num("bytes") != 4 || c.read("f") != "both" {
		t.Fatalf("got %s", r.line)
	}
}
