package adapter_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
)

// dials counts the connections of an adapter and those still open.
type dials struct {
	mu         sync.Mutex
	made, open int
	refuse     func(n int) bool // of the n-th
}

type countedConn struct {
	*net.TCPConn
	d    *dials
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.d.mu.Lock()
		c.d.open--
		c.d.mu.Unlock()
	})
	return c.TCPConn.Close()
}

func (d *dials) dial(ctx context.Context, e dataport.Endpoint) (net.Conn, error) {
	d.mu.Lock()
	d.made++
	refused := d.refuse != nil && d.refuse(d.made)
	d.mu.Unlock()
	if refused {
		return nil, io.ErrClosedPipe
	}
	conn, err := dataport.Dialer{}.Dial(ctx, e)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.open++
	d.mu.Unlock()
	return &countedConn{TCPConn: conn.(*net.TCPConn), d: d}, nil
}

func (d *dials) counts() (made, open int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made, d.open
}

func readAll(t *testing.T, a *adapter.Sandbox, path string) string {
	t.Helper()
	s, err := a.ReadFileStream(t.Context(), path, sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDialAhead: a stream takes one connection, also where the dial beside its
// mint failed or the mint did, and none stays open.
func TestDialAhead(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	want := strings.Repeat("0123456789", 5<<10)
	if err := os.WriteFile(filepath.Join(st.cwd, "f"), []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &dials{refuse: func(n int) bool { return n == 3 }}
	a := connect(t, adapter.Options{Control: st.addr.String(), Dial: d.dial})
	for i, made := range []int{2, 4, 5} { // with the control connection; the third dial is refused
		if got := readAll(t, a, "f"); got != want {
			t.Fatalf("%d bytes", len(got))
		}
		if n, _ := d.counts(); n != made {
			t.Fatalf("stream %d: %d dials, want %d", i, n, made)
		}
	}
	_, err := a.ReadFileStream(t.Context(), "missing", sandbox.ReadOptions{})
	wantKind(t, err, sandbox.KindNotFound)
	_, err = a.OpenWrite(t.Context(), "no/parent", sandbox.WriteOptions{})
	wantKind(t, err, sandbox.KindNotFound)
	a.Close()
	if n, open := d.counts(); n != 6 || open != 0 {
		t.Fatalf("%d dials, %d open", n, open)
	}
}

// TestDialAheadInASession: a session has its own connection, and no other is
// made.
func TestDialAheadInASession(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	if err := os.WriteFile(filepath.Join(st.cwd, "f"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &dials{}
	a := connect(t, adapter.Options{Control: st.addr.String(), Mux: true, Dial: d.dial})
	if got := readAll(t, a, "f"); got != "content" {
		t.Fatalf("got %q", got)
	}
	if n, _ := d.counts(); n != 1 {
		t.Fatalf("%d dials", n)
	}
}

// TestDialAheadElsewhere: a transfer that is to be opened elsewhere is, and the
// connection that was dialled ahead is closed.
func TestDialAheadElsewhere(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	if err := os.WriteFile(filepath.Join(st.cwd, "f"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	cut := newCutter(t, st.addr.Host+":"+st.addr.String()[strings.LastIndex(st.addr.String(), ":")+1:])
	d := &dials{}
	a := connect(t, adapter.Options{Control: st.addr.String(), Dial: d.dial})
	if err := a.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.data = cut.url() // hello named another
	if got := readAll(t, a, "f"); got != "content" {
		t.Fatalf("got %q", got)
	}
	a.Close()
	if n, open := d.counts(); n != 3 || open != 0 {
		t.Fatalf("%d dials, %d open", n, open)
	}
}

// TestDialAheadHangs: a data port that does not answer holds no error of the
// mint up.
func TestDialAheadHangs(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	hangs := make(chan error, 1)
	control := true
	a := connect(t, adapter.Options{Control: st.addr.String(), Dial: func(ctx context.Context, e dataport.Endpoint) (net.Conn, error) {
		if control {
			control = false
			return dataport.Dialer{}.Dial(ctx, e)
		}
		<-ctx.Done()
		hangs <- ctx.Err()
		return nil, ctx.Err()
	}})
	_, err := a.ReadFileStream(t.Context(), "missing", sandbox.ReadOptions{})
	wantKind(t, err, sandbox.KindNotFound)
	if err := <-hangs; err == nil {
		t.Fatal("the dial was not called off")
	}
}
