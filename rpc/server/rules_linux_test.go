package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
)

// TestKinds has a backend fail in every way and sees the code, the outcome and
// the kind that a client is told: P6.2, P6.3, P6.4 and P6.8.
func TestKinds(t *testing.T) {
	table := map[int][]sandbox.Kind{
		-32700: {"parse_error"},
		-32600: {"invalid_request", "message_too_large"},
		-32601: {"unknown_method"},
		-32602: {"invalid_params"},
		-32603: {"internal"},
		-32001: {"unauthenticated"},
		-32002: {"permission", "read_only"},
		-32003: {"not_found"},
		-32004: {"exists", "not_empty", "is_directory", "not_directory", "not_regular", "loop", "name_too_long", "cross_device", "busy"},
		-32005: {"too_large", "no_space"},
		-32006: {"conflict", "changed"},
		-32007: {"token_invalid"},
		-32008: {"truncated", "aborted", "stalled", "corrupt"},
		-32009: {"resource_exhausted", "unavailable"},
		-32010: {"unsupported", "argument_too_long", "start_failed"},
		-32800: {"cancelled"},
	}
	g := start(t, nil)
	r := g.login()
	stat := func(err error) reply {
		g.fake.fail = err
		return r.call(`{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":"x"}}`)
	}
	for code, kinds := range table {
		for _, kind := range kinds {
			p := stat(&sandbox.Error{Kind: kind, Limit: sandbox.Some(int64(5)), Bytes: sandbox.Some(int64(1)), Expected: sandbox.Some(int64(2)), RetryAfter: time.Second})
			if p.code() != code || p.kind() != string(kind) {
				t.Errorf("%s: got %d %s", kind, p.code(), p.kind())
			}
			needs := kind == "unavailable" || kind == "aborted" || kind == "internal"
			if _, has := p.Error.Data["outcome"]; has != needs {
				t.Errorf("%s: data %v", kind, p.Error.Data)
			}
			if d := p.Error.Data; d["limit"] != 5.0 || d["bytes"] != 1.0 || d["expected"] != 2.0 || d["retry_after_s"] != 1.0 {
				t.Errorf("%s: data %v", kind, d)
			}
		}
	}
	for _, kind := range []sandbox.Kind{sandbox.KindConnectionLost, sandbox.KindOutcomeUnknown} {
		p := stat(&sandbox.Error{Kind: kind})
		if p.kind() != "unavailable" || p.Error.Data["reason"] != "link_lost" || p.Error.Data["outcome"] != "unknown" {
			t.Errorf("%s: %+v", kind, p.Error)
		}
	}
	for _, err := range []error{errors.New("of no kind"), &sandbox.Error{Kind: "made up"}, &sandbox.Error{Kind: sandbox.KindInvalidUTF8}} {
		if p := stat(err); p.code() != -32603 || p.kind() != "internal" {
			t.Errorf("%v: %+v", err, p.Error)
		}
	}
	for errno, kind := range map[syscall.Errno]string{
		syscall.ENOENT: "not_found", syscall.EACCES: "permission", syscall.EPERM: "permission", syscall.EROFS: "read_only",
		syscall.ENOSPC: "no_space", syscall.EDQUOT: "no_space", syscall.E2BIG: "argument_too_long", syscall.EIO: "internal",
		syscall.EEXIST: "exists", syscall.ENOTEMPTY: "not_empty", syscall.EXDEV: "cross_device", syscall.EBUSY: "busy", syscall.ELOOP: "loop",
	} {
		if p := stat(errno); p.kind() != kind || p.Error.Data["errno"] == nil {
			t.Errorf("%v: %+v", errno, p.Error)
		}
	}
}

// TestTimes: P5.5 and P8.24. A time that cannot be written is absent, and so is
// all that a backend does not know.
func TestTimes(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	for want, when := range map[string]time.Time{
		`"1969-12-31T23:59:59.000000001Z"`: time.Unix(-1, 1),
		`"9999-12-31T23:59:59Z"`:           time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		`"2001-02-03T02:05:06.7Z"`:         time.Date(2001, 2, 3, 4, 5, 6, 7e8, time.FixedZone("", 7200)),
		"":                                 time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		g.fake.stat = &sandbox.FileStat{Type: sandbox.TypeFile, ModTime: sandbox.Some(when)}
		p := r.call(`{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":"x"}}`)
		if got := string(p.Result["mtime"]); got != want {
			t.Errorf("%v came as %s, want %s", when, got, want)
		}
		for _, field := range []string{"size", "mode", "is_symlink", "etag"} {
			if v, ok := p.Result[field]; ok {
				t.Errorf("%s was invented: %s", field, v)
			}
		}
	}
}

// TestMuxData: P2.12, P2.11 and P2.6. A token of a session opens a stream of
// that session alone, and presenting it elsewhere does not spend it.
func TestMuxData(t *testing.T) {
	g := start(t, nil)
	_, s := g.loginMux()
	_, other := g.loginMux()
	a := g.stream(s)
	tk := a.mint("write_file_stream", "f")
	plain := g.login().mint("write_file_stream", "g")
	present := func(r *raw, token, want string) *raw {
		t.Helper()
		r.write("CTRLD1 " + token + "\nhello")
		if got := r.readLine(); got != want {
			t.Fatalf("answered %q, want %q", got, want)
		}
		return r
	}
	const refused = "ERR token_invalid\n"
	present(g.dial(), tk.Token, refused)
	present(g.stream(other), tk.Token, refused)
	present(g.stream(s), plain.Token, refused)
	data := present(g.stream(s), tk.Token, "OK\n")
	if p := a.call(commitLine(7, tk)); p.Error != nil || p.text(t, "bytes") != "5" {
		t.Fatalf("got %+v", p)
	}
	data.closed()
	present(g.stream(s), tk.Token, refused)
	present(g.dial(), plain.Token, "OK\n")
	if got, err := g.fake.get("", "f"); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestMuxWindow: P2.13. So much a client can send to a stream that nobody
// reads, and not a byte more.
func TestMuxWindow(t *testing.T) {
	blocked := make(chan struct{})
	g := start(t, func(c *server.Config) {
		c.ServeData = func(_ context.Context, conn net.Conn, _ any) {
			<-blocked
			conn.Close()
		}
	})
	defer close(blocked)
	_, s := g.loginMux()
	conn, err := s.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	conn.SetWriteDeadline(time.Now().Add(patience))
	if n, err := conn.Write([]byte("C" + strings.Repeat("x", 1<<20-1))); err != nil {
		t.Fatalf("sent %d bytes: %v", n, err)
	}
	// The first byte was taken to look at it, which may make room for another.
	conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := conn.Write(make([]byte, 64<<10)); n > 1 || err == nil {
		t.Fatalf("sent %d bytes more: %v", n, err)
	}
}

// TestMuxBeforeHello: P2.14. What fails before the session is answered in JSON.
func TestMuxBeforeHello(t *testing.T) {
	g := start(t, nil)
	r := g.dial()
	r.expect(hello(`{"protocol":1,"token":5,"mux":"yamux"}`), "0", -32602, "invalid_params")
	r.expect(hello(`{"protocol":1,"token":"bad","mux":"yamux"}`), "0", -32001, "unauthenticated")
	r.closed()
	// Frames of yamux instead of hello are no first byte of ours.
	r = g.dial()
	r.write("\x00\x01\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00")
	r.closed()
}

// TestPreambleDeadline: P11.1, P11.4 and P2.16. A preamble that does not come
// whole in time is closed without a word, on the data port and on a stream.
func TestPreambleDeadline(t *testing.T) {
	g := start(t, func(c *server.Config) { c.HelloTimeout = time.Second })
	_, s := g.loginMux()
	idle := g.stream(s) // says nothing for longer than a preamble may take
	for _, r := range []*raw{g.dial(), g.stream(s)} {
		r.write("CTRLD1 0123456789")
		r.closed()
	}
	idle.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
}

// TestCommitOutlivesItsConnection: P10.7. A rename that has begun is not undone
// by the end of the connection that asked for it.
func TestCommitOutlivesItsConnection(t *testing.T) {
	g := start(t, nil)
	g.fake.commit = make(chan struct{})
	a, b := g.login(), g.login()
	tk := a.mint("write_file_stream", "f")
	data := g.dial()
	data.write("CTRLD1 " + tk.Token + "\nhello")
	data.readLine()
	a.send(commitLine(2, tk))
	waitFor(t, func() bool { return g.fake.committing.Load() == 1 })
	b.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"transfer_result","params":{"id":%q}}`, tk.ID))
	a.conn.Close()
	b.expect(`{"jsonrpc":"2.0","id":9,"method":"ping"}`, "9", 0, "")
	close(g.fake.commit)
	if p := b.reply(); p.Error != nil || p.text(t, "bytes") != "5" {
		t.Fatalf("got %+v", p)
	}
	if got, err := g.fake.get("", "f"); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestDeadPeers: P4.15. The system looks for dead peers, and silence alone ends
// nothing.
func TestDeadPeers(t *testing.T) {
	g := start(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	served, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go g.server.ServeConn(context.Background(), served, server.Control)
	r := newRaw(t, conn)
	r.expect(helloLine, "0", 0, "")
	sc, err := served.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	sc.Control(func(fd uintptr) {
		get := func(level, opt int) int {
			n, err := syscall.GetsockoptInt(int(fd), level, opt)
			if err != nil {
				t.Error(err)
			}
			return n
		}
		const userTimeout = 0x12 // TCP_USER_TIMEOUT
		got["keepalive"] = get(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
		got["idle"] = get(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
		got["interval"] = get(syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL)
		got["count"] = get(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT)
		got["user timeout"] = get(syscall.IPPROTO_TCP, userTimeout)
	})
	for name, want := range map[string]int{"keepalive": 1, "idle": 15, "interval": 10, "count": 3, "user timeout": 45000} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
}

// TestFirstByteDeadline: P3.5. Who says nothing at all is closed as well.
func TestFirstByteDeadline(t *testing.T) {
	g := start(t, func(c *server.Config) { c.HelloTimeout = 200 * time.Millisecond })
	r := g.dial()
	r.closed()
	r = g.dial()
	io.WriteString(r.conn, " ")
	r.closed()
}
