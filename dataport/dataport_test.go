package dataport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
)

const token = "0123456789012345678901234567890123456789abc"

func TestParseEndpoint(t *testing.T) {
	for in, want := range map[string]dataport.Endpoint{
		"tcp://127.0.0.1:7071":           {Scheme: "tcp", Host: "127.0.0.1", Port: 7071},
		"tcp://:7072":                    {Scheme: "tcp", Port: 7072},
		"tcp://[::1]:1":                  {Scheme: "tcp", Host: "::1", Port: 1},
		"tls://example.com:443":          {Scheme: "tls", Host: "example.com", Port: 443},
		"unix:///run/a%20b.sock":         {Scheme: "unix", Path: "/run/a b.sock"},
		"vsock://3:1024":                 {Scheme: "vsock", CID: 3, Port: 1024},
		"vsock://:1024":                  {Scheme: "vsock", CID: dataport.AnyCID, Port: 1024},
		"hybrid-vsock:///run/v.sock:52":  {Scheme: "hybrid-vsock", Path: "/run/v.sock", Port: 52},
		"hybrid-vsock:///a:b/v.sock:052": {Scheme: "hybrid-vsock", Path: "/a:b/v.sock", Port: 52},
		"mux:":                           {Scheme: "mux"},
	} {
		got, err := dataport.ParseEndpoint(in)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
			continue
		}
		again, err := dataport.ParseEndpoint(got.String())
		if err != nil || again != got {
			t.Errorf("%s: %s does not read back: %+v, %v", in, got, again, err)
		}
	}
	for _, in := range []string{"", "x", "tcp:", "tcp://", "tcp://host", "tcp://h:65536", "tcp://h:-1", "tcp://h:x", "unix://rel", "unix:", "vsock://3", "vsock://x:1", "vsock://4294967296:1", "hybrid-vsock:///p", "ftp://h:1", "mux://x", "unix:///a%00b"} {
		if e, err := dataport.ParseEndpoint(in); err == nil {
			t.Errorf("%q was read as %+v", in, e)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"tcp://127.0.0.1:1", "unix:///a", "vsock://:1", "hybrid-vsock:///p:1", "mux:"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := dataport.ParseEndpoint(s)
		if err != nil {
			return
		}
		again, err := dataport.ParseEndpoint(e.String())
		if err != nil || again != e {
			t.Fatalf("%q: %s does not read back: %+v, %v", s, e, again, err)
		}
	})
}

func TestPrivate(t *testing.T) {
	for in, want := range map[string]bool{
		"tcp://127.0.0.1:1": true, "tcp://127.9.9.9:1": true, "tcp://[::1]:1": true, "tcp://localhost:1": true, "unix:///a": true, "vsock://3:1": true,
		"tcp://0.0.0.0:1": false, "tcp://:1": false, "tcp://[::]:1": false, "tcp://10.0.0.1:1": false, "tls://h:1": false,
	} {
		e, err := dataport.ParseEndpoint(in)
		if err != nil || e.Private() != want {
			t.Errorf("%s: private %v, %v", in, e.Private(), err)
		}
	}
}

func TestParsePreamble(t *testing.T) {
	good := "CTRLD1 " + token + "\n"
	magic, got, err := dataport.ParsePreamble([]byte(good))
	if err != nil || magic != "CTRLD1 " || got != token {
		t.Fatalf("%q %q %v", magic, got, err)
	}
	for name, bad := range map[string]string{
		"short": good[:50], "long": good + "x", "magic": "CTRLD2" + good[6:], "no newline": good[:50] + " ",
		"CR": good[:49] + "\r\n", "DEL": good[:20] + "\x7f" + good[21:], "empty": "", "space": good[:20] + " " + good[21:],
	} {
		if _, _, err := dataport.ParsePreamble([]byte(bad)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzPreamble(f *testing.F) {
	f.Add([]byte("CTRLD1 " + token + "\n"))
	f.Add([]byte("CTRLF1 " + token + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		magic, got, err := dataport.ParsePreamble(b)
		if err == nil && magic+got+"\n" != string(b) {
			t.Fatalf("%q was read as %q %q", b, magic, got)
		}
	})
}

// handler takes a connection and tells what it read until EOF.
type handler struct{ got chan []byte }

func (h handler) ServeData(_ context.Context, conn net.Conn) {
	io.WriteString(conn, dataport.Welcome)
	b, _ := io.ReadAll(conn)
	h.got <- b
	conn.Close()
}

func tcpPair(t *testing.T) (a, b *net.TCPConn) {
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
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near.(*net.TCPConn), far.(*net.TCPConn)
}

func TestPreambleInAnyPiecesLeavesThePayload(t *testing.T) {
	whole := "CTRLD1 " + token + "\npayload"
	for cut := 1; cut < len(whole); cut++ {
		near, far := tcpPair(t)
		h := handler{make(chan []byte, 1)}
		var serving sync.WaitGroup
		serving.Go(func() {
			dataport.Serve(t.Context(), far, dataport.Claims{Bytes: func(got string) (dataport.Handler, error) {
				if got != token {
					return nil, errors.New("wrong")
				}
				return h, nil
			}})
		})
		io.WriteString(near, whole[:cut])
		io.WriteString(near, whole[cut:])
		near.CloseWrite()
		if got := string(<-h.got); got != "payload" {
			t.Fatalf("cut at %d: payload %q", cut, got)
		}
		serving.Wait()
	}
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		send, want string
		err        error
	}{
		"unknown":     {"CTRLD1 " + token + "\n", "ERR token_invalid\n", &sandbox.Error{Kind: sandbox.KindTokenInvalid}},
		"any other":   {"CTRLD1 " + token + "\n", "ERR token_invalid\n", errors.New("boom")},
		"draining":    {"CTRLD1 " + token + "\n", "ERR unavailable\n", &sandbox.Error{Kind: sandbox.KindUnavailable}},
		"full":        {"CTRLD1 " + token + "\n", "ERR resource_exhausted\n", &sandbox.Error{Kind: sandbox.KindResourceExhausted}},
		"descriptors": {"CTRLF1 " + token + "\n", "ERR unsupported\n", nil},
		"odd token":   {"CTRLD1 " + strings.Repeat("!", 43) + "\n", "ERR token_invalid\n", errors.New("unknown")},
		"malformed":   {"CTRLD1 " + strings.Repeat(" ", 43) + "\n", "", nil},
	} {
		near, far := tcpPair(t)
		var serving sync.WaitGroup
		serving.Go(func() {
			claim := func(string) (dataport.Handler, error) { return nil, tc.err }
			dataport.Serve(t.Context(), far, dataport.Claims{Bytes: claim, File: claim})
		})
		io.WriteString(near, tc.send)
		near.CloseWrite()
		got, err := io.ReadAll(near)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		serving.Wait()
	}
}

func TestOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		want   sandbox.Kind
	}{
		"ok":        {"OK\n", ""},
		"refused":   {"ERR token_invalid\n", sandbox.KindTokenInvalid},
		"not ours":  {"HTTP/1.1 400\n", sandbox.KindConnectionLost},
		"cut short": {"O", sandbox.KindConnectionLost},
	} {
		near, far := tcpPair(t)
		go func() {
			io.ReadFull(far, make([]byte, 51))
			io.WriteString(far, tc.answer)
			far.CloseWrite()
		}()
		dial := func(context.Context) (net.Conn, error) { return near, nil }
		bad := func(context.Context) (net.Conn, error) { return nil, errors.New("down") }
		_, err := dataport.Open(t.Context(), token, []func(context.Context) (net.Conn, error){bad, dial}, nil)
		if got := sandbox.KindOf(err); got != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := dataport.Open(t.Context(), token, nil, nil)
	if sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Errorf("no endpoint: %v", err)
	}
}

func never() bool { return false }

// welcomed takes the welcome off a connection.
func welcomed(t *testing.T, conn net.Conn) {
	t.Helper()
	got := make([]byte, len(dataport.Welcome))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != dataport.Welcome {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestSendAndReceive(t *testing.T) {
	pattern := bytes.Repeat([]byte("0123456789abcdef"), 300_000)
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	if err := os.WriteFile(src, pattern, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reader  func() io.Reader
		splices int
	}{
		"sendfile, splice":  {func() io.Reader { f, _ := os.Open(src); return f }, 0},
		"sendfile, buffers": {func() io.Reader { f, _ := os.Open(src); return f }, 1},
		"copy, splice":      {func() io.Reader { return bytes.NewReader(pattern) }, 0},
	} {
		near, far := tcpPair(t)
		pump := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute, Splices: tc.splices})
		var hold sync.WaitGroup
		if tc.splices == 1 {
			// Another reception holds the one pipe.
			_, other := tcpPair(t)
			f, _ := os.Create(filepath.Join(dir, "held"))
			hold.Go(func() {
				pump.Receive("", other, f, false, func() (sandbox.Optional[int64], bool) { return sandbox.Optional[int64]{}, false })
			})
			defer hold.Wait()
			defer other.Close()
		}
		sent := make(chan error, 1)
		go func() {
			n, err := pump.Send("", near, tc.reader(), sandbox.Some(int64(len(pattern))), never)
			if err == nil && n != int64(len(pattern)) {
				err = fmt.Errorf("sent %d", n)
			}
			sent <- err
		}()
		out, err := os.Create(filepath.Join(dir, "out"))
		if err != nil {
			t.Fatal(err)
		}
		welcomed(t, far)
		got, err := pump.Receive("", far, out, false, func() (sandbox.Optional[int64], bool) { return sandbox.Some(int64(len(pattern))), false })
		if err != nil || got.Bytes != int64(len(pattern)) || got.More || got.EOF {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if err := <-sent; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, _ := os.ReadFile(out.Name())
		if !bytes.Equal(b, pattern) {
			t.Fatalf("%s: bytes differ", name)
		}
	}
}

func TestReceiveSeesOneByteTooMany(t *testing.T) {
	near, far := tcpPair(t)
	io.WriteString(near, "12345")
	pump := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute})
	near.CloseWrite()
	out, _ := os.Create(filepath.Join(t.TempDir(), "out"))
	got, err := pump.Receive("", far, out, false, func() (sandbox.Optional[int64], bool) { return sandbox.Some(int64(4)), false })
	if err != nil || !got.More || got.Bytes != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestReceiveIsInterruptedByACommit(t *testing.T) {
	near, far := tcpPair(t)
	io.WriteString(near, "1234")
	pump := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute})
	out, _ := os.Create(filepath.Join(t.TempDir(), "out"))
	var mu sync.Mutex
	var want sandbox.Optional[int64]
	asked := make(chan struct{}, 100)
	type result struct {
		got dataport.Received
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := pump.Receive("", far, out, false, func() (sandbox.Optional[int64], bool) {
			select {
			case asked <- struct{}{}:
			default:
			}
			mu.Lock()
			defer mu.Unlock()
			return want, false
		})
		done <- result{got, err}
	}()
	<-asked
	mu.Lock()
	want = sandbox.Some(int64(4))
	mu.Unlock()
	far.SetReadDeadline(time.Unix(1, 0))
	if r := <-done; r.err != nil || r.got.Bytes != 4 || r.got.EOF {
		t.Fatalf("%+v", r)
	}
}

func TestStalls(t *testing.T) {
	const stall = 200 * time.Millisecond
	pump := dataport.NewPump(dataport.PumpOptions{Stall: stall})
	near, far := tcpPair(t)
	start := time.Now()
	_, err := pump.Receive("", far, io.Discard, false, func() (sandbox.Optional[int64], bool) { return sandbox.Optional[int64]{}, false })
	if sandbox.KindOf(err) != sandbox.KindStalled || time.Since(start) < stall {
		t.Fatalf("receive: %v after %v", err, time.Since(start))
	}
	_, err = pump.Send("", near, zeros{}, sandbox.Optional[int64]{}, never)
	if sandbox.KindOf(err) != sandbox.KindStalled {
		t.Fatalf("send: %v", err)
	}
}

// A peer that is slow but moves is no stall.
func TestTrickleIsNoStall(t *testing.T) {
	pump := dataport.NewPump(dataport.PumpOptions{Stall: 2 * time.Second})
	near, far := tcpPair(t)
	go func() {
		for range 12 {
			io.WriteString(near, "x")
			time.Sleep(250 * time.Millisecond)
		}
		near.CloseWrite()
	}()
	out, _ := os.Create(filepath.Join(t.TempDir(), "out"))
	got, err := pump.Receive("", far, out, false, func() (sandbox.Optional[int64], bool) { return sandbox.Optional[int64]{}, false })
	if err != nil || got.Bytes != 12 || !got.EOF {
		t.Fatalf("%+v, %v", got, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestSendToAPeerThatIsGone(t *testing.T) {
	near, far := tcpPair(t)
	far.SetLinger(0)
	far.Close()
	_, err := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute}).Send("", near, zeros{}, sandbox.Optional[int64]{}, never)
	if sandbox.KindOf(err) != sandbox.KindAborted {
		t.Fatal(err)
	}
}

func TestSendOfAFileThatIsTooShort(t *testing.T) {
	near, far := tcpPair(t)
	go io.Copy(io.Discard, far)
	path := filepath.Join(t.TempDir(), "f")
	os.WriteFile(path, []byte("123"), 0o600)
	f, _ := os.Open(path)
	defer f.Close()
	n, err := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute}).Send("", near, f, sandbox.Some(int64(5)), never)
	if n != 3 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%d, %v", n, err)
	}
}

func TestCloseSentWaitsForThePeerAndLosesNothing(t *testing.T) {
	near, far := tcpPair(t)
	go io.WriteString(far, "junk that nobody asked for")
	go func() {
		near.Write(bytes.Repeat([]byte("x"), 100_000))
		dataport.CloseSent(near, time.Minute)
	}()
	b, err := io.ReadAll(far)
	if err != nil || len(b) != 100_000 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
}

func TestUnixListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	e := dataport.Endpoint{Scheme: dataport.SchemeUnix, Path: path}
	ln, err := dataport.Listen(e, dataport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if _, err := dataport.Listen(e, dataport.ListenOptions{}); err == nil {
		t.Fatal("took the socket of a living process")
	}
	ln.Close()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	ln, err = dataport.Listen(e, dataport.ListenOptions{})
	if err != nil {
		t.Fatalf("a socket left behind: %v", err)
	}
	ln.Close()
}

// TestDurableReceptionKeepsEveryByte: what is written out behind the bytes
// that arrive is still the file.
func TestDurableReceptionKeepsEveryByte(t *testing.T) {
	near, far := tcpPair(t)
	const size = 300 << 20
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		for range size / len(block) {
			near.Write(block)
		}
		near.CloseWrite()
	}()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	got, err := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute}).Receive("", far, out, true, func() (sandbox.Optional[int64], bool) { return sandbox.Some(int64(size)), false })
	if err != nil || got.Bytes != size {
		t.Fatalf("%+v, %v", got, err)
	}
	piece := make([]byte, len(block))
	for off := int64(0); off < size; off += int64(len(block)) {
		if _, err := out.ReadAt(piece, off); err != nil || !bytes.Equal(piece, block) {
			t.Fatalf("differs at %d, %v", off, err)
		}
	}
}
