package dataport_test

import (
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/dataport"
)

// accepting accepts everything and says "in" to it.
func accepting(t *testing.T, e dataport.Endpoint, o dataport.ListenOptions) net.Addr {
	t.Helper()
	ln, err := dataport.Listen(e, o)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "in")
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-over })
	return ln.Addr()
}

// letIn dials from a local address and tells whether it was accepted.
func letIn(t *testing.T, addr net.Addr, from string) bool {
	t.Helper()
	d := net.Dialer{}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := d.DialContext(t.Context(), addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	b, _ := io.ReadAll(conn)
	return string(b) == "in"
}

func TestListenFromNetworks(t *testing.T) {
	refused := make(chan net.Addr, 1)
	addr := accepting(t, dataport.Endpoint{Scheme: dataport.SchemeTCP, Host: "127.0.0.1"}, dataport.ListenOptions{
		AllowFrom: []netip.Prefix{netip.MustParsePrefix("127.1.0.0/16"), netip.MustParsePrefix("127.0.0.1/32")},
		Refused:   func(a net.Addr) { refused <- a },
	})
	for from, want := range map[string]bool{"127.0.0.1": true, "127.1.2.3": true, "127.0.0.2": false, "127.2.0.1": false} {
		if got := letIn(t, addr, from); got != want {
			t.Errorf("%s: let in %v, want %v", from, got, want)
		}
		if !want {
			if a := <-refused; a.(*net.TCPAddr).IP.String() != from {
				t.Errorf("refused %v, want %s", a, from)
			}
		}
	}
}

func TestListenToUsers(t *testing.T) {
	for name, o := range map[string]dataport.ListenOptions{
		"own":    {},
		"nobody": {AllowUID: func(uint32) bool { return false }},
		"any":    {AllowUID: func(uint32) bool { return false }, AnyUser: true},
	} {
		addr := accepting(t, dataport.Endpoint{Scheme: dataport.SchemeUnix, Path: filepath.Join(t.TempDir(), "s")}, o)
		if got := letIn(t, addr, ""); got != (name != "nobody") {
			t.Errorf("%s: let in %v", name, got)
		}
	}
}

// TestListenToNoOtherUsers: by default that is this user and root.
func TestListenToNoOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	dir, err := os.MkdirTemp("", "u")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	accepting(t, dataport.Endpoint{Scheme: dataport.SchemeUnix, Path: path}, dataport.ListenOptions{})
	for name, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[int]bool{0: true, 65534: false} {
		if got := letInAs(t, uid, path); got != want {
			t.Errorf("uid %d: let in %v", uid, got)
		}
	}
}

// letInAs is letIn of a Unix socket, as another user.
func letInAs(t *testing.T, uid int, path string) bool {
	t.Helper()
	in := make(chan bool, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends as somebody else
		defer close(in)
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			t.Error(errno)
			return
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			t.Error(err)
			return
		}
		var b [8]byte
		n, _ := unix.Read(fd, b[:])
		in <- n > 0
	}()
	return <-in
}
