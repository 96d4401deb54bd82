package adapter_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// judge is a backend that calls before it judges a read and before it ends it.
type judge struct {
	sandbox.Backend
	before func()
}

type judged struct {
	sandbox.Source
	before func()
}

// OpenRead implements sandbox.Backend.
func (j judge) OpenRead(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.Source, error) {
	src, err := j.Backend.OpenRead(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	return judged{src, j.before}, nil
}

// Finish implements sandbox.Source.
func (j judged) Finish(sent int64) (sandbox.ReadVerdict, error) {
	j.before()
	return j.Source.Finish(sent)
}

// Close implements sandbox.Source.
func (j judged) Close() error {
	j.before()
	return j.Source.Close()
}

// judgedStage is a stage with a file f whose server calls before it judges a
// read and before it ends it.
func judgedStage(t *testing.T, before func()) *stage {
	t.Helper()
	st := newStageWith(t, "tcp://127.0.0.1:0", func(c *server.Config, b sandbox.Backend) {
		c.Host = host{judge{b, before}}
	})
	if err := os.WriteFile(filepath.Join(st.cwd, "f"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	return st
}

// whole reads all bytes of a stream; what is left is its verdict.
func whole(t *testing.T, ctx context.Context, a *adapter.Sandbox) *sandbox.ReadStream {
	t.Helper()
	s, err := a.ReadFileStream(ctx, "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := io.ReadFull(s, make([]byte, len("content"))); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestVerdictTakesItsTime: a verdict on bytes that are all there is waited for
// longer than one on a stream that broke.
func TestVerdictTakesItsTime(t *testing.T) {
	t.Parallel()
	late := make(chan struct{})
	st := judgedStage(t, func() { <-late })
	s := whole(t, t.Context(), connect(t, adapter.Options{Control: st.addr.String()}))
	defer time.AfterFunc(5500*time.Millisecond, func() { close(late) }).Stop() // more than a broken stream waits
	if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("%d, %v", n, err)
	}
}

// TestVerdictIsNotWaitedForBeyondTheContext: who gives up does not wait for a
// server that says nothing.
func TestVerdictIsNotWaitedForBeyondTheContext(t *testing.T) {
	t.Parallel()
	never, judging := make(chan struct{}), make(chan struct{})
	st := judgedStage(t, func() {
		select {
		case <-judging: // the close of an abort, which has no outcome before
		default:
			close(judging)
		}
		<-never
	})
	defer close(never)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := whole(t, ctx, connect(t, adapter.Options{Control: st.addr.String()}))
	<-judging
	read := make(chan error, 1)
	go func() {
		_, err := s.Read(make([]byte, 1))
		read <- err
	}()
	cancel()
	wantKind(t, <-read, sandbox.KindCancelled)
}

// dataConn is a data connection whose reads and writes a test may replace.
type dataConn struct {
	*net.TCPConn
	read, write func(*net.TCPConn, []byte) (int, error)
	closing     chan struct{} // where not nil, takes a value when a close begins
	release     chan struct{} // where not nil, holds closes up
}

// Close implements net.Conn.
func (c *dataConn) Close() error {
	if c.closing != nil {
		c.closing <- struct{}{}
	}
	if c.release != nil {
		<-c.release
	}
	return c.TCPConn.Close()
}

// Read implements net.Conn.
func (c *dataConn) Read(p []byte) (int, error) {
	if c.read != nil {
		return c.read(c.TCPConn, p)
	}
	return c.TCPConn.Read(p)
}

// Write implements net.Conn.
func (c *dataConn) Write(p []byte) (int, error) {
	if c.write != nil {
		return c.write(c.TCPConn, p)
	}
	return c.TCPConn.Write(p)
}

// dialsData dials as usual, and has data connections be like like.
func dialsData(control dataport.Endpoint, like dataConn) func(context.Context, dataport.Endpoint) (net.Conn, error) {
	var mu sync.Mutex
	first := true
	return func(ctx context.Context, e dataport.Endpoint) (net.Conn, error) {
		conn, err := dataport.Dialer{}.Dial(ctx, e)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || first && e == control {
			first = false
			return conn, err
		}
		c := like
		c.TCPConn = conn.(*net.TCPConn)
		return &c, nil
	}
}

// TestVerdictBeforeTheWelcome: a verdict that says how much there is to read
// does not come between the token and its answer.
func TestVerdictBeforeTheWelcome(t *testing.T) {
	judging := make(chan struct{}, 1)
	st := judgedStage(t, func() {
		select {
		case judging <- struct{}{}:
		default:
		}
	})
	var a *adapter.Sandbox
	var once sync.Once
	a = connect(t, adapter.Options{Control: st.addr.String(), Dial: dialsData(st.addr, dataConn{read: func(c *net.TCPConn, p []byte) (int, error) {
		once.Do(func() {
			<-judging
			for range 20 { // a verdict that was asked for comes in the meantime
				a.Ping(context.Background())
			}
		})
		return c.Read(p)
	}})})
	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, a, "/proc/version"); got != string(want) {
		t.Fatalf("got %q", got)
	}
}

// expiring is a stage whose tokens live for ttl (0: as usual), with a file f.
func expiring(t *testing.T, ttl time.Duration) *stage {
	t.Helper()
	table := transfer.NewTable(transfer.Config{TokenTTL: ttl})
	t.Cleanup(func() { table.Close(&sandbox.Error{Kind: sandbox.KindUnavailable}) })
	st := newStageWith(t, "tcp://127.0.0.1:0", func(c *server.Config, _ sandbox.Backend) { c.Transfers = table })
	if err := os.WriteFile(filepath.Join(st.cwd, "f"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	return st
}

// into is a Write that sends nothing.
func into(_ *net.TCPConn, p []byte) (int, error) { return len(p), nil }

// TestWhyThereIsNoWelcome: where the data connection ends without an answer to
// the token, the outcome of the transfer says why, if it knows.
func TestWhyThereIsNoWelcome(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl  time.Duration
		conn dataConn
		want sandbox.Kind
	}{
		"expired": {50 * time.Millisecond, dataConn{write: into}, sandbox.KindTokenInvalid}, // its verdict ends the connection
		"broken":  {0, dataConn{write: into, read: func(*net.TCPConn, []byte) (int, error) { return 0, io.EOF }}, sandbox.KindConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			st := expiring(t, tt.ttl)
			a := connect(t, adapter.Options{Control: st.addr.String(), Dial: dialsData(st.addr, tt.conn)})
			_, err := a.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
			wantKind(t, err, tt.want)
		})
	}
}

// TestCloseHoldsNothingUp: a data connection that takes its time to close (TLS
// says good-bye) holds up neither who has a verdict nor the control connection.
func TestCloseHoldsNothingUp(t *testing.T) {
	t.Run("verdict", func(t *testing.T) {
		release := make(chan struct{})
		st := judgedStage(t, func() {})
		a := connect(t, adapter.Options{Control: st.addr.String(), Dial: dialsData(st.addr, dataConn{release: release})})
		t.Cleanup(func() { close(release) })
		if got := readAll(t, a, "f"); got != "content" {
			t.Fatalf("got %q", got)
		}
	})
	t.Run("error", func(t *testing.T) {
		release, closing := make(chan struct{}), make(chan struct{}, 8)
		st := expiring(t, 50*time.Millisecond)
		a := connect(t, adapter.Options{Control: st.addr.String(), Dial: dialsData(st.addr, dataConn{write: into, closing: closing, release: release})})
		opened := make(chan error, 1)
		go func() {
			_, err := a.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
			opened <- err
		}()
		<-closing
		if err := a.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(release)
		wantKind(t, <-opened, sandbox.KindTokenInvalid)
	})
}
