package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/controld/controld/sandboxhost/daemon"
)

// The secrets of the daemons here: of tenant acme, of another tenant, and of
// acme for the sandbox "box" alone.
const (
	wireSecret  = "acme-secret-0123456789abcdefghijklmnopqrstu"
	wireOther   = "other-secret-0123456789abcdefghijklmnopqrst"
	wireBoxOnly = "box-secret-0123456789abcdefghijklmnopqrstuv"
)

// wireDaemon is a daemon in this process, seen through its sockets alone.
type wireDaemon struct {
	t     *testing.T
	cfg   daemon.Config
	ready daemon.Ready
	log   *safeBuffer
	drain chan struct{}
	// again has the daemon read its files anew.
	again chan struct{}
	ended chan error
	stop  func() // ends the daemon at once and waits
}

// safeBuffer takes a log while it is read.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// wireConfig is the configuration of a daemon in a directory of its own.
func wireConfig(t *testing.T) daemon.Config {
	t.Helper()
	dir := t.TempDir()
	cfg := daemon.Default()
	cfg.Control, cfg.Data = []string{"tcp://127.0.0.1:0"}, []string{"tcp://127.0.0.1:0"}
	cfg.Admin = "tcp://127.0.0.1:0"
	cfg.StateDir, cfg.Tokens = filepath.Join(dir, "state"), filepath.Join(dir, "tokens")
	cfg.LogLevel = "debug"
	lines := fmt.Sprintf("acme * %x\nother * %x\nacme box %x\n",
		sha256.Sum256([]byte(wireSecret)), sha256.Sum256([]byte(wireOther)), sha256.Sum256([]byte(wireBoxOnly)))
	if err := os.WriteFile(cfg.Tokens, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// startWire starts a daemon; adjust, which may be nil, changes its
// configuration. When the test ends so does the daemon, and leaves nothing.
func startWire(t *testing.T, adjust func(*daemon.Config)) *wireDaemon {
	t.Helper()
	cfg := wireConfig(t)
	if adjust != nil {
		adjust(&cfg)
	}
	return runWire(t, cfg)
}

// leaksOf are the tests whose goroutines are counted at their end.
var leaksOf sync.Map

// checkLeaks wants a test, or the part of one that starts the first daemon, to
// leave no goroutine. A daemon beside the first may still be starting some of
// its own, so they are counted once.
func checkLeaks(t *testing.T) {
	whole, _, _ := strings.Cut(t.Name(), "/")
	if _, already := leaksOf.LoadOrStore(whole, true); already {
		return
	}
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		leaksOf.Delete(whole)
		goleak.VerifyNone(t, before)
	})
}

func runWire(t *testing.T, cfg daemon.Config) *wireDaemon {
	t.Helper()
	checkLeaks(t)
	d := &wireDaemon{t: t, cfg: cfg, log: &safeBuffer{}, drain: make(chan struct{}), again: make(chan struct{}), ended: make(chan error, 1)}
	ready := make(chan daemon.Ready, 1)
	run, err := daemon.New(cfg, daemon.Options{Version: "test", Log: d.log, Drain: d.drain, Reload: d.again, Ready: func(r daemon.Ready) { ready <- r }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		d.ended <- run.Run(ctx)
	}()
	d.stop = func() { cancel(); <-over }
	t.Cleanup(d.stop)
	select {
	case d.ready = <-ready:
	case <-over:
		t.Fatalf("the daemon did not start: %v", <-d.ended)
	}
	return d
}

// path is a file of the default sandbox.
func (d *wireDaemon) path(elem ...string) string {
	return filepath.Join(append([]string{d.cfg.StateDir, "sandboxes", "acme", "default"}, elem...)...)
}

func (d *wireDaemon) put(name, content string) {
	d.t.Helper()
	if err := os.WriteFile(d.path(name), []byte(content), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *wireDaemon) get(name string) string {
	d.t.Helper()
	b, err := os.ReadFile(d.path(name))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// connect dials a URL of the daemon.
func (d *wireDaemon) connect(url string) net.Conn {
	d.t.Helper()
	network, addr, _ := strings.Cut(url, "://")
	conn, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// wireClient speaks JSON-RPC by bare lines.
type wireClient struct {
	t    *testing.T
	d    *wireDaemon
	conn net.Conn
	in   *bufio.Reader
	last int
	kept map[string]wireReply // answers that came before they were waited for
}

// obj is a JSON object.
type obj = map[string]any

// wireReply is an answer as a stranger reads it.
type wireReply struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  obj             `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    obj    `json:"data"`
	} `json:"error"`
	line string
}

func (d *wireDaemon) dial() *wireClient {
	d.t.Helper()
	conn := d.connect(d.ready.Control[0])
	return &wireClient{t: d.t, d: d, conn: conn, in: bufio.NewReaderSize(conn, 1<<20), kept: map[string]wireReply{}}
}

// login says hello as tenant acme; more adds params.
func (d *wireDaemon) login(more ...obj) *wireClient {
	d.t.Helper()
	c := d.dial()
	params := obj{"protocol": 1, "token": wireSecret, "client": "wire/1"}
	for _, m := range more {
		for k, v := range m {
			params[k] = v
		}
	}
	c.ok("hello", params)
	return c
}

func (c *wireClient) write(text string) {
	c.t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// send sends a request and returns its id.
func (c *wireClient) send(method string, params obj) string {
	c.t.Helper()
	c.last++
	if params == nil {
		params = obj{}
	}
	text, err := json.Marshal(obj{"jsonrpc": "2.0", "id": c.last, "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(string(text) + "\n")
	return fmt.Sprint(c.last)
}

// cancel cancels by a notification.
func (c *wireClient) cancel(id string) {
	c.t.Helper()
	c.write(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":` + id + "}}\n")
}

// receive reads one answer.
func (c *wireClient) receive() wireReply {
	c.t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatalf("read: %v behind %.200q", err, line)
	}
	r := wireReply{line: line}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		c.t.Fatalf("%v: %.200q", err, line)
	}
	if r.Version != "2.0" || r.ID == nil || (r.Result == nil) == (r.Error == nil) {
		c.t.Fatalf("no answer of JSON-RPC 2.0: %.200q", line)
	}
	return r
}

// wait reads until the answer with that id has come.
func (c *wireClient) wait(id string) wireReply {
	c.t.Helper()
	for {
		if r, ok := c.kept[id]; ok {
			delete(c.kept, id)
			return r
		}
		r := c.receive()
		if _, twice := c.kept[string(r.ID)]; twice {
			c.t.Fatalf("two answers with id %s", r.ID)
		}
		c.kept[string(r.ID)] = r
	}
}

func (c *wireClient) call(method string, params obj) wireReply {
	c.t.Helper()
	return c.wait(c.send(method, params))
}

// ok calls and wants a result.
func (c *wireClient) ok(method string, params obj) wireReply {
	c.t.Helper()
	r := c.call(method, params)
	if r.Error != nil {
		c.t.Fatalf("%s %v: %.300s", method, params, r.line)
	}
	return r
}

// fails calls and wants an error.
func (c *wireClient) fails(method string, params obj, code int, kind string) wireReply {
	c.t.Helper()
	return c.call(method, params).want(c.t, code, kind)
}

// want checks an error.
func (r wireReply) want(t *testing.T, code int, kind string) wireReply {
	t.Helper()
	if r.Error == nil || r.Error.Code != code || r.Error.Data["kind"] != kind {
		t.Fatalf("got %.300s, want %d %s", r.line, code, kind)
	}
	return r
}

// closed wants the connection to end without another byte.
func (c *wireClient) closed() {
	c.t.Helper()
	c.conn.SetDeadline(time.Now().Add(patience))
	if rest, err := io.ReadAll(c.in); len(rest) > 0 || os.IsTimeout(err) {
		c.t.Fatalf("%q, %v before the close", rest, err)
	}
}
