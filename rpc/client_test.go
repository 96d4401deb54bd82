package rpc_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// far is the server's end of a connection, played by the test.
type far struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func connect(t *testing.T, opts rpc.ConnOptions) (*rpc.Conn, *far) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return wrap(t, near, there, opts)
}

func wrap(t *testing.T, near, there net.Conn, opts rpc.ConnOptions) (*rpc.Conn, *far) {
	c := rpc.NewConn(near, opts)
	t.Cleanup(func() { c.Close(); there.Close() })
	return c, &far{t, there, bufio.NewReaderSize(there, 1<<20)}
}

// take reads a request.
func (f *far) take() string {
	f.t.Helper()
	f.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := f.in.ReadString('\n')
	if err != nil {
		f.t.Errorf("read: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (f *far) want(line string) {
	f.t.Helper()
	if got := f.take(); got != line {
		f.t.Errorf("got %s, want %s", got, line)
	}
}

func (f *far) say(lines ...string) {
	f.t.Helper()
	f.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(f.conn, strings.Join(lines, "\n")+"\n"); err != nil {
		f.t.Errorf("write: %v", err)
	}
}

// async runs a call and gives its error on a channel.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func wait(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("the call does not return")
		return nil
	}
}

func TestCallsCrossing(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{})
	var st sandbox.FileStat
	a := async(func() (err error) { st, err = c.Stat(t.Context(), "p", sandbox.StatOptions{}); return err })
	f.want(`{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":"p"}}`)
	b := async(func() error { return c.Mkdir(t.Context(), "d", sandbox.MkdirOptions{Recursive: true}) })
	f.want(`{"jsonrpc":"2.0","id":2,"method":"mkdir","params":{"path":"d","recursive":true}}`)
	f.say(`{"jsonrpc":"2.0","id":2,"error":{"code":-32004,"message":"mkdir d: is there","data":{"kind":"exists","op":"mkdir","path":"d","errno":"EEXIST"}}}`)
	var e *sandbox.Error
	if err := wait(t, b); !errors.As(err, &e) || e.Kind != sandbox.KindExists || e.Error() != "mkdir d: is there" {
		t.Fatalf("got %v", err)
	}
	// The result may come before the id, and unknown fields and ids pass.
	f.say(`{"id":77,"result":{}}`, `{"extra":[1],"result":{"new":{},"size":5,"type":"file"},"jsonrpc":"2.0","id":1}`)
	if err := wait(t, a); err != nil || st.Size.Value != 5 || st.Type != sandbox.TypeFile {
		t.Fatalf("got %+v %v", st, err)
	}
}

func TestForeignTypes(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{})
	var out struct{ A []int }
	done := async(func() error { return c.Call(t.Context(), "x/y", map[string]int{"n": 1}, &out) })
	f.want(`{"jsonrpc":"2.0","id":1,"method":"x/y","params":{"n":1}}`)
	f.say(`{"id":1,"result":{"A":[1,2]}}`)
	if err := wait(t, done); err != nil || len(out.A) != 2 {
		t.Fatalf("got %v %v", out, err)
	}
	if err := c.Notify(t.Context(), "n", nil); err != nil {
		t.Fatal(err)
	}
	f.want(`{"jsonrpc":"2.0","method":"n"}`)
}

func TestCancelAnswered(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := async(func() error { _, err := c.Exec(ctx, "sleep 9", sandbox.ExecOptions{}); return err })
	f.take()
	cancel()
	f.want(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
	f.say(`{"id":1,"error":{"code":-32800,"message":"x","data":{"kind":"cancelled"}}}`)
	if err := wait(t, done); sandbox.KindOf(err) != sandbox.KindCancelled || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	// Past the point of no return the answer counts.
	ctx, cancel = context.WithCancel(t.Context())
	done = async(func() error { return c.Rm(ctx, "p", sandbox.RmOptions{}) })
	f.take()
	cancel()
	f.take()
	f.say(`{"id":2,"result":{}}`)
	if err := wait(t, done); err != nil {
		t.Fatalf("got %v", err)
	}
}

func TestCancelUnanswered(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{CancelTimeout: 50 * time.Millisecond})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := async(func() error { return c.Rm(ctx, "p", sandbox.RmOptions{}) })
	f.take() // it has left, whole, so that it cannot be taken back
	why := errors.New("enough")
	cancel(why)
	if err := wait(t, done); sandbox.KindOf(err) != sandbox.KindOutcomeUnknown || !errors.Is(err, why) {
		t.Fatalf("got %v", err)
	}
	f.say(`{"id":1,"result":{}}`) // too late, and no harm
	done = async(func() error { return c.Ping(t.Context()) })
	for !strings.Contains(f.take(), "ping") {
	}
	f.say(`{"id":2,"result":{}}`)
	if err := wait(t, done); err != nil {
		t.Fatal(err)
	}
}

// TestLostOutcomes: what surely never left is known not to have happened.
func TestLostOutcomes(t *testing.T) {
	near, there := net.Pipe()
	c, f := wrap(t, near, there, rpc.ConnOptions{})
	begun := async(func() error { return c.Rm(t.Context(), strings.Repeat("a", 100), sandbox.RmOptions{}) })
	io.ReadFull(f.conn, make([]byte, 10)) // half a request
	queued := make([]<-chan error, 5)
	for i := range queued {
		queued[i] = async(func() error { return c.Rm(t.Context(), "b", sandbox.RmOptions{}) })
	}
	time.Sleep(10 * time.Millisecond) // most are queued now; the rest is refused, which says the same
	f.conn.Close()
	<-c.Done()
	var e *sandbox.Error
	if err := wait(t, begun); !errors.As(err, &e) || e.Kind != sandbox.KindConnectionLost || e.Outcome != sandbox.OutcomeUnknown {
		t.Fatalf("begun: %+v", err)
	}
	for _, done := range queued {
		if err := wait(t, done); !errors.As(err, &e) || e.Kind != sandbox.KindConnectionLost || e.Outcome != sandbox.OutcomeNone {
			t.Fatalf("queued: %+v", err)
		}
	}
	if err := c.Ping(t.Context()); !errors.As(err, &e) || e.Outcome != sandbox.OutcomeNone || c.Err() == nil {
		t.Fatalf("after the end: %v", err)
	}
}

// TestCancelUnsent: a request that waits behind another is taken back.
func TestCancelUnsent(t *testing.T) {
	near, there := net.Pipe()
	c, f := wrap(t, near, there, rpc.ConnOptions{})
	first := async(func() error { return c.Rm(t.Context(), strings.Repeat("a", 100), sandbox.RmOptions{}) })
	io.ReadFull(f.conn, make([]byte, 10))
	ctx, cancel := context.WithCancel(t.Context())
	second := async(func() error {
		_, err := c.WriteFile(ctx, "b", make([]byte, 1<<20), sandbox.WriteOptions{})
		return err
	})
	time.Sleep(10 * time.Millisecond)
	cancel()
	var e *sandbox.Error
	if err := wait(t, second); !errors.As(err, &e) || e.Kind != sandbox.KindCancelled || e.Outcome != sandbox.OutcomeNone {
		t.Fatalf("got %+v", err)
	}
	f.take()
	f.say(`{"id":1,"result":{}}`)
	if err := wait(t, first); err != nil {
		t.Fatal(err)
	}
}

func TestPing(t *testing.T) {
	quick := rpc.ConnOptions{PingInterval: 30 * time.Millisecond, PingTimeout: 3 * time.Second}
	c, f := connect(t, quick)
	// Also while a call runs, and the connection lives as long as it is
	// answered.
	call := async(func() error { _, err := c.Exec(t.Context(), "sleep", sandbox.ExecOptions{}); return err })
	f.take()
	for id := 2; id < 7; id++ {
		f.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id))
		f.say(fmt.Sprintf(`{"id":%d,"result":{}}`, id))
	}
	f.take()
	begin := time.Now()
	var e *sandbox.Error
	if err := wait(t, call); !errors.As(err, &e) || e.Kind != sandbox.KindConnectionLost || e.Outcome != sandbox.OutcomeUnknown {
		t.Fatalf("got %v", err)
	}
	if d := time.Since(begin); d > patience || d < 2*time.Second {
		t.Fatalf("dropped after %v", d)
	}
	<-c.Done()
}

// TestPingSeesProgress: a long answer that is still coming is a sign of life.
func TestPingSeesProgress(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{PingInterval: 50 * time.Millisecond, PingTimeout: time.Second})
	call := async(func() error {
		_, err := c.ReadFile(t.Context(), "p", sandbox.ReadOptions{})
		return err
	})
	f.take()
	io.WriteString(f.conn, `{"id":1,"result":{"size":1,"content":{"text":"`)
	for range 30 {
		time.Sleep(100 * time.Millisecond) // a slow link
		io.WriteString(f.conn, "aaaaaaaa")
	}
	f.say(`"}}}`)
	if err := wait(t, call); err != nil {
		t.Fatal(err)
	}
}

func TestBadServers(t *testing.T) {
	for name, line := range map[string]string{
		"no JSON":        `{"id":1,"result":{`,
		"refusal":        `{"id":null,"error":{"code":-32600,"message":"x","data":{"kind":"message_too_large"}}}`,
		"invalid UTF-8":  "{\"id\":1,\"result\":{\"x\":\"\xff\"}}",
		"endless line":   `{"x":"` + strings.Repeat("a", 200<<10),
		"nested too far": `{"id":1,"result":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			c, f := connect(t, rpc.ConnOptions{MaxMessageBytes: 100 << 10})
			call := async(func() error { return c.Ping(t.Context()) })
			f.take()
			f.say(line)
			if err := wait(t, call); err == nil {
				t.Fatal("taken")
			}
			<-c.Done()
		})
	}
	t.Run("wrong types", func(t *testing.T) {
		c, f := connect(t, rpc.ConnOptions{})
		call := async(func() error { _, err := c.Exists(t.Context(), "p", sandbox.ExistsOptions{}); return err })
		f.take()
		f.say(`{"id":1,"result":{"exists":"yes"}}`)
		if err := wait(t, call); sandbox.KindOf(err) != sandbox.KindInternal {
			t.Fatalf("got %v", err)
		}
		call = async(func() error { _, err := c.ReadDir(t.Context(), "p", sandbox.ReadDirOptions{}); return err })
		f.take()
		f.say(`{"id":2,"result":{"entries":["../x"]}}`)
		if err := wait(t, call); sandbox.KindOf(err) != sandbox.KindInternal {
			t.Fatalf("got %v", err)
		}
	})
}

func TestTooLargeToSend(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{MaxMessageBytes: 1000})
	_, err := c.WriteFile(t.Context(), "p", make([]byte, 2000), sandbox.WriteOptions{})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.KindTooLarge || e.Limit.Value != 1000 {
		t.Fatalf("got %v", err)
	}
	done := async(func() error {
		_, err := c.Hello(t.Context(), rpc.HelloParams{Protocol: 1, Token: "t"})
		return err
	})
	f.take()
	f.say(`{"id":2,"result":{"protocol":1,"epoch":"e","cwd":"/","capabilities":[],"limits":{"max_message_bytes":5000}}}`)
	if err := wait(t, done); err != nil {
		t.Fatal(err)
	}
	done = async(func() error {
		_, err := c.WriteFile(t.Context(), "p", make([]byte, 2000), sandbox.WriteOptions{})
		return err
	})
	f.take()
	f.say(`{"id":3,"result":{"bytes":2000}}`)
	if err := wait(t, done); err != nil {
		t.Fatal(err)
	}
}

func TestExecNeedsUTF8(t *testing.T) {
	c, _ := connect(t, rpc.ConnOptions{})
	for _, err := range []error{
		func() error { _, err := c.Exec(t.Context(), "a\xff", sandbox.ExecOptions{}); return err }(),
		func() error {
			_, err := c.Exec(t.Context(), "a", sandbox.ExecOptions{Env: map[string]string{"A": "\xff"}})
			return err
		}(),
	} {
		if sandbox.KindOf(err) != sandbox.KindInvalidParams {
			t.Fatalf("got %v", err)
		}
	}
}

// TestStorm has many calls answered, cancelled and lost at once.
func TestStorm(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{CancelTimeout: 5 * time.Millisecond})
	content := bytes.Repeat([]byte("x\n"), 20000)
	go func() { // answers two of three, in bursts
		for n := 0; ; n++ {
			line, err := f.in.ReadString('\n')
			if err != nil {
				return
			}
			_, rest, _ := strings.Cut(line, `"id":`)
			id, _, _ := strings.Cut(rest, ",")
			if n%3 != 0 && !strings.Contains(line, "cancelRequest") {
				fmt.Fprintf(f.conn, "{\"id\":%s,\"result\":{\"bytes\":1}}\n", id)
			}
			if n == 600 {
				f.conn.Close()
			}
		}
	}()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for j := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*j)*time.Millisecond/50)
				mine := bytes.Clone(content)
				c.WriteFile(ctx, "p", mine, sandbox.WriteOptions{})
				clear(mine) // it is the caller's again
				cancel()
			}
		})
	}
	all.Wait()
}
