package integration

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/daemon"
)

// The rules that bind clients, held by the project's own.

// scripted is a connection whose far side answers each line by what answer
// returns for it.
func scripted(t *testing.T, answer func(id, line string) string) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer far.Close()
		for in := bufio.NewReader(far); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, id, _ := strings.Cut(line, `"id":`)
			id, _, _ = strings.Cut(id, ",")
			reply := answer(id, line)
			if reply == "close" {
				return
			}
			io.WriteString(far, reply)
		}
	}()
	t.Cleanup(func() {
		near.Close()
		<-done
	})
	return near
}

// TestClientPings: P4.17. A silent connection is asked, and given up when it
// stays silent.
func TestClientPings(t *testing.T) {
	answers := true
	pings := make(chan bool, 100)
	conn := rpc.NewConn(scripted(t, func(id, line string) string {
		if !strings.Contains(line, `"method":"ping"`) {
			t.Errorf("the client said %s", line)
		}
		pings <- answers
		if len(pings) > 3 {
			answers = false
		}
		if !answers {
			return ""
		}
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}` + "\n"
	}), rpc.ConnOptions{PingInterval: 50 * time.Millisecond, PingTimeout: 3 * time.Second})
	defer conn.Close()
	select {
	case <-conn.Done():
	case <-time.After(patience):
		t.Fatal("a silent server was not given up")
	}
	if len(pings) < 4 {
		t.Fatalf("%d pings", len(pings))
	}
}

// TestClientIsLenient: P5.13 and P6.7.
func TestClientIsLenient(t *testing.T) {
	conn := rpc.NewConn(scripted(t, func(id, line string) string {
		head := `{"jsonrpc":"2.0","new":[1],"id":` + id
		if strings.Contains(line, `"exists"`) {
			return head + `,"result":{"later":{"x":1},"exists":true}}` + "\n"
		}
		return head + `,"error":{"code":-32009,"extra":null,"message":"m","data":{"kind":"too_tired","sheep":9,"limit":3}}}` + "\n"
	}), rpc.ConnOptions{})
	defer conn.Close()
	var r rpc.ExistsResult
	if err := conn.Call(t.Context(), rpc.MethodExists, &rpc.ExistsParams{Path: "x"}, &r); err != nil || !r.Exists {
		t.Fatalf("%+v, %v", r, err)
	}
	err := conn.Call(t.Context(), rpc.MethodPing, nil, nil)
	if e := wantKind(t, err, sandbox.KindResourceExhausted); e.Limit != sandbox.Some(int64(3)) {
		t.Fatalf("got %+v", e)
	}
}

// TestClientKinds: P6.8. What is the client's own and what is known of a call
// then.
func TestClientKinds(t *testing.T) {
	lost := rpc.NewConn(scripted(t, func(string, string) string { return "close" }), rpc.ConnOptions{})
	defer lost.Close()
	e := wantKind(t, lost.Call(t.Context(), rpc.MethodPing, nil, nil), sandbox.KindConnectionLost)
	if e.Outcome != sandbox.OutcomeUnknown {
		t.Errorf("sent: outcome %q", e.Outcome)
	}
	<-lost.Done()
	e = wantKind(t, lost.Call(t.Context(), rpc.MethodPing, nil, nil), sandbox.KindConnectionLost)
	if e.Outcome != sandbox.OutcomeNone {
		t.Errorf("never sent: outcome %q", e.Outcome)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mute := rpc.NewConn(scripted(t, func(string, string) string { cancel(); return "" }), rpc.ConnOptions{CancelTimeout: 50 * time.Millisecond})
	defer mute.Close()
	wantKind(t, mute.Call(ctx, rpc.MethodPing, nil, nil), sandbox.KindOutcomeUnknown)

	d := startWire(t, nil)
	d.login()
	d.put("f", "\xff")
	sb := clientOf(t, d, adapter.Options{})
	_, err := sb.ReadFile(t.Context(), "f", sandbox.ReadOptions{})
	wantKind(t, err, sandbox.KindInvalidUTF8)
}

// clientOf is an adapter of a daemon.
func clientOf(t *testing.T, d *wireDaemon, o adapter.Options) *adapter.Sandbox {
	t.Helper()
	o.Token = wireSecret
	if o.Control == "" {
		o.Control = d.ready.Control[0]
	}
	sb, err := adapter.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}

// TestClientEndpoints: P1.6. Endpoints are tried in their order, a missing host
// is the one of the control plane, and an address of the client's own wins.
func TestClientEndpoints(t *testing.T) {
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := startWire(t, func(c *daemon.Config) {
		c.AdvertiseData = []string{"tcp://first.example:1", "tcp://:2", "tcp://third.example:3"}
		c.Control = append(c.Control, "unix://"+dir+"/c")
	})
	for name, tt := range map[string]struct {
		control string
		data    []string
		want    string
	}{
		"named":     {d.ready.Control[0], nil, "tcp://first.example:1 tcp://127.0.0.1:2"},
		"localhost": {"tcp://localhost:7", nil, "tcp://first.example:1 tcp://localhost:2"},
		"unix":      {"unix://" + dir + "/c", nil, "tcp://first.example:1 tcp://127.0.0.1:2"},
		"own":       {d.ready.Control[0], []string{"tcp://own.example:2"}, "tcp://own.example:2"},
	} {
		t.Run(name, func(t *testing.T) {
			var dialled []string
			dial := func(ctx context.Context, e dataport.Endpoint) (net.Conn, error) {
				if e.String() == tt.control {
					return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(d.ready.Control[0], "tcp://"))
				}
				dialled = append(dialled, e.String())
				if e.Port == 1 {
					return nil, errors.New("nobody there")
				}
				return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(d.ready.Data[0], "tcp://"))
			}
			sb := clientOf(t, d, adapter.Options{Control: tt.control, Data: tt.data, Dial: dial})
			if _, err := sb.WriteFileStream(t.Context(), "f", strings.NewReader("x"), sandbox.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(dialled, " "); got != tt.want {
				t.Fatalf("dialled %s, want %s", got, tt.want)
			}
		})
	}
}

// TestClientHybridVsock: P1.7. Not a byte behind the answer is taken.
func TestClientHybridVsock(t *testing.T) {
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", dir+"/v")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	asked := make(chan string, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		line, _ := bufio.NewReader(conn).ReadString('\n')
		asked <- line
		io.WriteString(conn, "OK 1073741824\nthe guest's own")
	}()
	e, err := dataport.ParseEndpoint("hybrid-vsock://" + dir + "/v:5005")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dataport.Dialer{}.Dial(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rest, err := io.ReadAll(conn)
	if got := <-asked; got != "CONNECT "+strconv.Itoa(5005)+"\n" || string(rest) != "the guest's own" || err != nil {
		t.Fatalf("asked %q, then %q, %v", got, rest, err)
	}
}

// shortConn ends its data early, as if the peer had ended it in good order.
type shortConn struct {
	net.Conn
	left int
}

func (c *shortConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// TestClientWantsTheVerdict: P10.40. Data that ends too early is no whole file
// to a client, however orderly it ends.
func TestClientWantsTheVerdict(t *testing.T) {
	d := startWire(t, nil)
	d.login()
	const size = 200000
	d.put("f", strings.Repeat("x", size))
	for _, cut := range []int{3, 4, 1000, 3 + size - 1, 3 + size} {
		sb := clientOf(t, d, adapter.Options{Dial: func(ctx context.Context, e dataport.Endpoint) (net.Conn, error) {
			conn, err := dataport.Dialer{}.Dial(ctx, e)
			if err == nil && e.String() == d.ready.Data[0] {
				return &shortConn{conn, cut}, nil
			}
			return conn, err
		}})
		s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(s)
		s.Close()
		if whole := cut == 3+size; whole != (err == nil) || whole != (len(b) == size) {
			t.Errorf("cut at %d: %d bytes, %v", cut, len(b), err)
		}
	}
}
