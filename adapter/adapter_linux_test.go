package adapter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/integration/faultproxy"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandbox/sandboxtest"
	"github.com/controld/controld/work"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host lets everybody in who has the token "good".
type host struct{ b sandbox.Backend }

func (h host) Open(ctx context.Context, hello rpc.HelloParams, _ server.Visitor) (*server.Session, error) {
	if hello.Token != "good" {
		return nil, &sandbox.Error{Kind: sandbox.KindUnauthenticated, Op: "hello"}
	}
	info, err := h.b.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &server.Session{Tenant: "t", Sandbox: hello.Sandbox, Backend: h.b, Info: info, Epoch: info.Epoch}, nil
}

// stage is a server over a local sandbox on a listener.
type stage struct {
	local *local.Sandbox
	cwd   string
	addr  dataport.Endpoint
	// data is what the server tells clients, addr where empty.
	data string
}

func newStage(t *testing.T, url string) *stage {
	t.Helper()
	return newStageWith(t, url, func(*server.Config, sandbox.Backend) {})
}

// newStageWith is a stage whose server is configured by change, which is also
// given the sandbox.
func newStageWith(t *testing.T, url string, change func(*server.Config, sandbox.Backend)) *stage {
	t.Helper()
	dir := t.TempDir()
	st := &stage{cwd: filepath.Join(dir, "cwd")}
	var err error
	if st.local, err = local.New(local.Options{DefaultCwd: st.cwd, StateDir: filepath.Join(dir, "state")}); err != nil {
		t.Fatal(err)
	}
	if st.addr, err = dataport.ParseEndpoint(url); err != nil {
		t.Fatal(err)
	}
	ln, err := dataport.Listen(st.addr, dataport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		st.addr.Port = uint32(a.Port)
	}
	keys, err := work.NewKeys(work.KeysConfig{Dir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{Host: host{st.local}, Keys: keys, DataURLs: func(net.Addr) []string {
		if st.data != "" {
			return []string{st.data}
		}
		return []string{st.addr.String()}
	}}
	change(&cfg, st.local)
	srv := server.New(cfg)
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(context.Background(), ln, server.Control|server.Data) })
	t.Cleanup(func() {
		srv.Close()
		serving.Wait()
		keys.Close()
		st.local.Close()
	})
	return st
}

func connect(t *testing.T, o adapter.Options) *adapter.Sandbox {
	t.Helper()
	if o.Token == "" {
		o.Token = "good"
	}
	a, err := adapter.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func wantKind(t *testing.T, err error, want sandbox.Kind) *sandbox.Error {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != want {
		t.Fatalf("%v is not of kind %s", err, want)
	}
	return e
}

// cutter is a proxy whose connections end after so many bytes in both
// directions together.
type cutter struct {
	ln     net.Listener
	target string
	limit  atomic.Int64 // bytes until the cut of the next connection; 0: none
	pick   func() int64 // says limit, where set
	cuts   atomic.Int64
	all    sync.WaitGroup
}

func newCutter(t *testing.T, target string) *cutter {
	t.Helper()
	return newPicker(t, target, nil)
}

func newPicker(t *testing.T, target string, pick func() int64) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ln: ln, target: target, pick: pick}
	c.all.Go(c.accept)
	t.Cleanup(func() {
		ln.Close()
		c.all.Wait()
	})
	return c
}

func (c *cutter) url() string { return "tcp://" + c.ln.Addr().String() }

func (c *cutter) accept() {
	for {
		near, err := c.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.target)
		if err != nil {
			near.Close()
			continue
		}
		left := &atomic.Int64{}
		left.Store(c.limit.Load())
		if c.pick != nil {
			left.Store(c.pick())
		}
		limited := left.Load() > 0
		c.all.Go(func() { c.forward(near, far, left, limited) })
		c.all.Go(func() { c.forward(far, near, left, limited) })
	}
}

// forward copies until either side ends or the bytes are used up; then both
// are reset, in the middle of whatever they were at.
func (c *cutter) forward(from, to net.Conn, left *atomic.Int64, limited bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if limited {
			after := left.Add(int64(-n))
			if after <= 0 {
				n = max(0, n+int(after))
				to.Write(buf[:n])
				from.(*net.TCPConn).SetLinger(0)
				to.(*net.TCPConn).SetLinger(0)
				c.cuts.Add(1)
				return
			}
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// TestNeverRunsACommandTwice cuts the control connection at random bytes while
// commands append lines to a file. With keys next to all succeed all the same.
func TestNeverRunsACommandTwice(t *testing.T) {
	cuts := int64(1000)
	if testing.Short() {
		cuts = 100
	}
	for name, o := range map[string]adapter.Options{"keys": {}, "no keys": {NoKeys: true}} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, "tcp://127.0.0.1:0")
			rng := rand.New(rand.NewPCG(1, 2))
			c := newPicker(t, fmt.Sprintf("127.0.0.1:%d", st.addr.Port), func() int64 { return 1 + rng.Int64N(4000) })
			o.Control = c.url()
			tries := appendThroughCuts(t, c, cuts, o)
			judgeTries(t, tries, filepath.Join(st.cwd, "log"), o.NoKeys)
		})
	}
}

// try is a command that was tried, and what was said of it.
type try struct {
	id  string
	err error
}

// appendThroughCuts has commands append lines until there were so many cuts.
func appendThroughCuts(t *testing.T, c *cutter, cuts int64, o adapter.Options) []try {
	t.Helper()
	var mu sync.Mutex
	var tries []try
	var wg sync.WaitGroup
	for lane := range 4 {
		wg.Go(func() {
			a := connect(t, o)
			for n := 0; c.cuts.Load() < cuts; n++ {
				id := fmt.Sprintf("%d.%d", lane, n)
				_, err := a.Exec(t.Context(), "echo "+id+" >> log", sandbox.ExecOptions{})
				mu.Lock()
				tries = append(tries, try{id, err})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d cuts", c.cuts.Load())
	return tries
}

// judgeTries compares what was said of commands with what they did.
func judgeTries(t *testing.T, tries []try, log string, lossy bool) {
	t.Helper()
	times := map[string]int{}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		times[lines.Text()]++
	}
	ok, none, unknown := 0, 0, 0
	for _, tr := range tries {
		var e *sandbox.Error
		switch {
		case tr.err == nil:
			ok++
			if times[tr.id] != 1 {
				t.Errorf("%s succeeded and ran %d times", tr.id, times[tr.id])
			}
		case !errors.As(tr.err, &e) || e.Outcome == "":
			t.Errorf("%s: %v says nothing of its outcome", tr.id, tr.err)
		case e.Outcome == sandbox.OutcomeNone:
			none++
			if times[tr.id] != 0 {
				t.Errorf("%s: %v, and yet it ran", tr.id, tr.err)
			}
		default:
			unknown++
			if times[tr.id] > 1 {
				t.Errorf("%s ran %d times", tr.id, times[tr.id])
			}
		}
	}
	t.Logf("%d succeeded, %d not run, %d unknown", ok, none, unknown)
	if ok == 0 || lossy && unknown == 0 {
		t.Error("the cuts hit nothing")
	}
	// What is not known by its key fails before it is sent, with the dial.
	if !lossy && unknown > len(tries)/100 {
		t.Errorf("%d of %d are unknown in spite of their keys", unknown, len(tries))
	}
}

// TestStreamsThroughCuts never takes a cut stream for a whole one.
func TestStreamsThroughCuts(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	control := connect(t, adapter.Options{Control: st.addr.String()})
	c := newCutter(t, fmt.Sprintf("127.0.0.1:%d", st.addr.Port))
	cut := connect(t, adapter.Options{Control: st.addr.String(), Data: []string{c.url()}})
	content := strings.Repeat("0123456789abcdef", 1<<16)
	if _, err := control.WriteFile(t.Context(), "old", []byte(content), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range 60 {
		c.limit.Store(60 + rng.Int64N(int64(len(content))))
		s, err := cut.ReadFileStream(t.Context(), "old", sandbox.ReadOptions{})
		if err == nil {
			n, copyErr := io.Copy(io.Discard, s)
			s.Close()
			if copyErr == nil {
				t.Fatalf("read %d: %d bytes looked whole", i, n)
			}
			var e *sandbox.Error
			if !errors.As(copyErr, &e) || !e.Bytes.Known {
				t.Fatalf("read %d: %v does not say how far it came", i, copyErr)
			}
		}
		_, err = cut.WriteFileStream(t.Context(), "old", strings.NewReader(content+content), sandbox.WriteOptions{})
		if err == nil {
			t.Fatalf("write %d: a cut upload succeeded", i)
		}
	}
	got, err := control.ReadFileBuffer(t.Context(), "old", sandbox.ReadOptions{})
	if err != nil || string(got.Data) != content {
		t.Fatalf("old file: %d bytes, %v", len(got.Data), err)
	}
	l, err := control.ReadDir(t.Context(), ".", sandbox.ReadDirOptions{})
	if err != nil || strings.Join(l.Names, " ") != "old" {
		t.Fatalf("left behind: %q, %v", l.Names, err)
	}
}

// inFlight has a command run over a connection that then dies under it, and
// returns what comes of it.
func inFlight(t *testing.T, o adapter.Options) (a *adapter.Sandbox, st *stage, ended <-chan error) {
	t.Helper()
	st = newStage(t, "tcp://127.0.0.1:0")
	c := newCutter(t, fmt.Sprintf("127.0.0.1:%d", st.addr.Port))
	o.Control = c.url()
	a = connect(t, o)
	c.limit.Store(2000)
	if err := a.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.limit.Store(0) // for the connections to come
	result := make(chan error, 1)
	go func() {
		_, err := a.Exec(t.Context(), "echo run >> begun; until [ -e go ]; do sleep 0.01; done", sandbox.ExecOptions{})
		result <- err
	}()
	for {
		if _, err := os.Stat(filepath.Join(st.cwd, "begun")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for range 100 { // uses up the connection's bytes
		a.Stat(t.Context(), strings.Repeat("x", 100), sandbox.StatOptions{})
	}
	if c.cuts.Load() == 0 {
		t.Fatal("the connection lives")
	}
	return a, st, result
}

// TestCallInFlightFailsAtOnce where the server does not know it by a key.
func TestCallInFlightFailsAtOnce(t *testing.T) {
	a, _, ended := inFlight(t, adapter.Options{NoKeys: true})
	e := wantKind(t, <-ended, sandbox.KindConnectionLost)
	if e.Outcome != sandbox.OutcomeUnknown {
		t.Fatalf("outcome %q", e.Outcome)
	}
	if ok, err := a.Exists(t.Context(), "begun", sandbox.ExistsOptions{}); err != nil || !ok {
		t.Fatalf("after the reconnect: %v, %v", ok, err)
	}
}

// TestCallInFlightIsFoundAgain by its key, and has run once.
func TestCallInFlightIsFoundAgain(t *testing.T) {
	_, st, ended := inFlight(t, adapter.Options{})
	if err := os.WriteFile(filepath.Join(st.cwd, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(st.cwd, "begun")); err != nil || string(b) != "run\n" {
		t.Fatalf("ran %q, %v", b, err)
	}
}

func TestDialErrors(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	for name, tc := range map[string]struct {
		opts adapter.Options
		want sandbox.Kind
	}{
		"nobody listens": {adapter.Options{Control: "tcp://127.0.0.1:1"}, sandbox.KindUnavailable},
		"wrong token":    {adapter.Options{Control: st.addr.String(), Token: "bad"}, sandbox.KindUnauthenticated},
		"wrong in mux":   {adapter.Options{Control: st.addr.String(), Token: "bad", Mux: true}, sandbox.KindUnauthenticated},
	} {
		a := connect(t, tc.opts)
		for range 2 {
			_, err := a.Stat(t.Context(), "f", sandbox.StatOptions{})
			e := wantKind(t, err, tc.want)
			if e.Outcome != sandbox.OutcomeNone || e.Op != "stat" || e.Path != "f" {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
	if _, err := adapter.New(adapter.Options{Control: "nonsense"}); err == nil {
		t.Error("nonsense was taken for a URL")
	}
}

// TestDialTimeout: a server that accepts and says nothing is given up.
func TestDialTimeout(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a := connect(t, adapter.Options{Control: "tcp://" + ln.Addr().String(), DialTimeout: 50 * time.Millisecond})
	_, err = a.Stat(t.Context(), "f", sandbox.StatOptions{})
	if e := wantKind(t, err, sandbox.KindUnavailable); e.Outcome != sandbox.OutcomeNone || e.Reason != "unreachable" {
		t.Errorf("%+v", e)
	}
}

func TestGivingUpEndsOnlyOnesOwnWaiting(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	release := make(chan struct{})
	var dials atomic.Int32
	a := connect(t, adapter.Options{Control: st.addr.String(), Dial: func(ctx context.Context, e dataport.Endpoint) (net.Conn, error) {
		dials.Add(1)
		<-release
		return dataport.Dialer{}.Dial(ctx, e)
	}})
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := a.Info(ctx)
		gaveUp <- err
	}()
	for dials.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stayed := make(chan error, 1)
	go func() {
		_, err := a.Info(t.Context())
		stayed <- err
	}()
	cancel()
	wantKind(t, <-gaveUp, sandbox.KindCancelled)
	close(release)
	if err := <-stayed; err != nil || dials.Load() != 1 {
		t.Fatalf("%v after %d dials", err, dials.Load())
	}
}

func TestClosed(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	a := connect(t, adapter.Options{Control: st.addr.String()})
	if err := a.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Close()
	a.Close()
	_, err := a.Stat(t.Context(), "f", sandbox.StatOptions{})
	wantKind(t, err, sandbox.KindUnavailable)
}

// startMuxer runs the emulator in front of the Unix socket dir/guest and
// returns its URL.
func startMuxer(t *testing.T, dir string) string {
	t.Helper()
	m, err := faultproxy.ListenMuxer(filepath.Join(dir, "muxer"), faultproxy.To("unix", filepath.Join(dir, "guest")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m.URL()
}

func TestHybridVsock(t *testing.T) {
	dir := t.TempDir()
	st := newStage(t, "unix://"+filepath.Join(dir, "guest"))
	st.data = startMuxer(t, dir)
	sandboxtest.Run(t, connect(t, adapter.Options{Control: st.data}))
}
