package dataport_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
)

// unixPair is a connected pair of Unix sockets.
func unixPair(t *testing.T) (near, far *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// openFDs lists what this process has open, but for the listing itself.
func openFDs(t *testing.T) map[string]bool {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for _, n := range names {
		if to, err := os.Readlink("/proc/self/fd/" + n.Name()); err == nil {
			open[n.Name()+" "+to] = true
		}
	}
	return open
}

// wantClosed wants nothing to be open that was not before.
func wantClosed(t *testing.T, name string, before map[string]bool) {
	t.Helper()
	for fd := range openFDs(t) {
		if !before[fd] {
			t.Errorf("%s: left open is %s", name, fd)
		}
	}
}

// answered presents a token to a server that answers with parts, each with its
// descriptors, and returns what the opener made of it.
func answered(t *testing.T, write bool, rules dataport.PassRules, parts ...part) (*dataport.Passed, error) {
	t.Helper()
	near, far := unixPair(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		defer far.Close()
		if _, err := io.ReadFull(far, make([]byte, 51)); err != nil {
			t.Error(err)
		}
		for _, p := range parts {
			far.WriteMsgUnix([]byte(p.text), unix.UnixRights(p.fds...), nil)
		}
	})
	dial := func(context.Context) (net.Conn, error) { return near, nil }
	p, err := dataport.OpenFile(t.Context(), token, dial, rules, write)
	serving.Wait()
	return p, err
}

// part is a piece of an answer and what comes with it.
type part struct {
	text string
	fds  []int
}

// opened returns a descriptor until the test ends.
func opened(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestDescriptorsThatLie: P11.19. Whatever else comes in place of a file is
// closed, and an error.
func TestDescriptorsThatLie(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("f"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	memfd, err := unix.MemfdCreate("m", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memfd)
	_, socket := tcpPair(t)
	sockFile, err := socket.File()
	if err != nil {
		t.Fatal(err)
	}
	defer sockFile.Close()
	read := opened(t, at("f"), unix.O_RDONLY)
	memW, err := unix.Open("/proc/self/fd/"+strconv.Itoa(memfd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memW)
	for name, tc := range map[string]struct {
		write bool
		parts []part
	}{
		"none":                     {false, []part{{"FD\n", nil}}},
		"two":                      {false, []part{{"FD\n", []int{read, read}}}},
		"more than there is room":  {false, []part{{"FD\n", slices.Repeat([]int{read}, 20)}}},
		"one more behind":          {false, []part{{"F", []int{read}}, {"D\n", []int{read}}}},
		"one that is late":         {false, []part{{"F", nil}, {"D\n", []int{read}}}},
		"with a refusal":           {false, []part{{"ERR unsupported\n", []int{read}}}},
		"with something else":      {false, []part{{"OK\n", []int{read}}}},
		"a FIFO":                   {false, []part{{"FD\n", []int{opened(t, at("fifo"), unix.O_RDONLY|unix.O_NONBLOCK)}}}},
		"a directory":              {false, []part{{"FD\n", []int{opened(t, dir, unix.O_RDONLY|unix.O_DIRECTORY)}}}},
		"a device":                 {false, []part{{"FD\n", []int{opened(t, "/dev/zero", unix.O_RDONLY)}}}},
		"a socket":                 {false, []part{{"FD\n", []int{int(sockFile.Fd())}}}},
		"a place":                  {false, []part{{"FD\n", []int{opened(t, at("f"), unix.O_PATH)}}}},
		"procfs":                   {false, []part{{"FD\n", []int{opened(t, "/proc/self/status", unix.O_RDONLY)}}}},
		"past the cache":           {false, []part{{"FD\n", []int{opened(t, at("f"), unix.O_RDONLY|unix.O_DIRECT)}}}},
		"both ways, to be read":    {false, []part{{"FD\n", []int{opened(t, at("f"), unix.O_RDWR)}}}},
		"for writing, to be read":  {false, []part{{"FD\n", []int{opened(t, at("f"), unix.O_WRONLY)}}}},
		"for reading, to write to": {true, []part{{"FD\n", []int{read}}}},
		"for appending":            {true, []part{{"FD\n", []int{opened(t, at("f"), unix.O_WRONLY|unix.O_APPEND)}}}},
		"a memfd to write to":      {true, []part{{"FD\n", []int{memW}}}},
	} {
		before := openFDs(t)
		p, err := answered(t, tc.write, dataport.PassRules{}, tc.parts...)
		if sandbox.KindOf(err) != sandbox.KindInternal || p != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantClosed(t, name, before)
	}
}

// TestNoFile: what is no lie and no file.
func TestNoFile(t *testing.T) {
	for answer, want := range map[string]sandbox.Kind{
		"ERR unsupported\n":   sandbox.KindUnsupported,
		"ERR token_invalid\n": sandbox.KindTokenInvalid,
		"HTTP/1.1 400\n":      sandbox.KindConnectionLost,
		"F":                   sandbox.KindConnectionLost,
		"":                    sandbox.KindConnectionLost,
	} {
		before := openFDs(t)
		_, err := answered(t, false, dataport.PassRules{}, part{answer, nil})
		if got := sandbox.KindOf(err); got != want {
			t.Errorf("%q: %v", answer, err)
		}
		wantClosed(t, answer, before)
	}
	near, _ := tcpPair(t)
	_, err := dataport.OpenFile(t.Context(), token, func(context.Context) (net.Conn, error) { return near, nil }, dataport.PassRules{}, false)
	if sandbox.KindOf(err) != sandbox.KindUnsupported {
		t.Errorf("over TCP: %v", err)
	}
}

// TestOpenFileGivesUp: a server that never answers is waited for as long as ctx.
func TestOpenFileGivesUp(t *testing.T) {
	near, far := unixPair(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		io.ReadFull(far, make([]byte, 51))
		cancel()
	}()
	_, err := dataport.OpenFile(ctx, token, func(context.Context) (net.Conn, error) { return near, nil }, dataport.PassRules{}, false)
	if sandbox.KindOf(err) != sandbox.KindCancelled {
		t.Fatal(err)
	}
}

// TestTmpfs: P11.19. A file on a tmpfs is read, and written where its mount is
// one that was named.
func TestTmpfs(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "controld-test-")
	if err != nil {
		t.Skipf("needs a tmpfs at /dev/shm: %v", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "f")
	w := opened(t, path, unix.O_WRONLY|unix.O_CREAT)
	r := opened(t, path, unix.O_RDONLY)
	var st unix.Stat_t
	if err := unix.Fstat(w, &st); err != nil {
		t.Fatal(err)
	}
	named := dataport.PassRules{TmpfsWrites: []uint64{st.Dev}}
	for name, tc := range map[string]struct {
		fd    int
		write bool
		rules dataport.PassRules
		want  sandbox.Kind
	}{
		"to be read":           {r, false, dataport.PassRules{}, ""},
		"to write to":          {w, true, dataport.PassRules{}, sandbox.KindInternal},
		"to write to, another": {w, true, dataport.PassRules{TmpfsWrites: []uint64{st.Dev + 1}}, sandbox.KindInternal},
		"to write to, named":   {w, true, named, ""},
	} {
		p, err := answered(t, tc.write, tc.rules, part{"FD\n", []int{tc.fd}})
		if sandbox.KindOf(err) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
		if p != nil {
			p.Close()
		}
	}
}

// TestPassedFileMoves sends and receives a file that was handed over, while its
// sender plays with the offset that both have.
func TestPassedFileMoves(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 500_000)
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	if err := os.WriteFile(src, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, length := range map[string]int64{"long": int64(len(content) - 3), "short": 100, "nothing": 0} {
		for _, splices := range []int{0, 1} {
			in := opened(t, src, unix.O_RDONLY)
			out := opened(t, filepath.Join(dir, "dst"), unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
			before := openFDs(t)
			from, err := answered(t, false, dataport.PassRules{}, part{"FD\n", []int{in}})
			if err != nil {
				t.Fatal(err)
			}
			to, err := answered(t, true, dataport.PassRules{}, part{"FD\n", []int{out}})
			if err != nil {
				t.Fatal(err)
			}
			from.SetOffset(3)
			unix.Seek(in, 77, io.SeekStart)
			unix.Seek(out, 77, io.SeekStart)
			pump := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute, Splices: splices})
			near, far := tcpPair(t)
			var sending sync.WaitGroup
			sending.Go(func() {
				n, err := pump.Send("t", near, from, sandbox.Some(length), never)
				if n != length || err != nil {
					t.Errorf("%s: sent %d, %v", name, n, err)
				}
				near.CloseWrite()
			})
			welcomed(t, far)
			got, err := pump.Receive("t", far, to, splices == 1, func() (sandbox.Optional[int64], bool) { return sandbox.Optional[int64]{}, false })
			if err != nil || got.Bytes != length {
				t.Errorf("%s: received %+v, %v", name, got, err)
			}
			sending.Wait()
			from.Close()
			to.Close()
			near.Close()
			far.Close()
			wantClosed(t, name, before)
			if text, err := os.ReadFile(filepath.Join(dir, "dst")); err != nil || string(text) != content[3:3+length] {
				t.Errorf("%s: %d bytes arrived, or others", name, len(text))
			}
		}
	}
}

// TestPassedFileEnds: a file that ends early, and one that is closed meanwhile.
func TestPassedFileEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, length := range []int64{50, 200_000} {
		p, err := answered(t, false, dataport.PassRules{}, part{"FD\n", []int{opened(t, path, unix.O_RDONLY)}})
		if err != nil {
			t.Fatal(err)
		}
		p.SetOffset(99_990)
		near, far := tcpPair(t)
		go io.Copy(io.Discard, far)
		pump := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute})
		if n, err := pump.Send("t", near, p, sandbox.Some(length), never); n != 10 || err != io.ErrUnexpectedEOF {
			t.Errorf("of %d bytes %d were sent, %v", length, n, err)
		}
		p.Close()
		p.Close()
		if n, err := pump.Send("t", near, p, sandbox.Some(length), never); n > 0 || err == nil {
			t.Errorf("%d bytes of a closed file, %v", n, err)
		}
	}
}
