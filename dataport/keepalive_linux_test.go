package dataport_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/dataport"
)

// wantKeepAlive checks that the system looks for a dead peer of conn.
func wantKeepAlive(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		for name, o := range map[string]struct{ level, opt, want int }{
			"SO_KEEPALIVE":  {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"TCP_KEEPIDLE":  {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15},
			"TCP_KEEPINTVL": {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10},
			"TCP_KEEPCNT":   {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
		} {
			if got, err := unix.GetsockoptInt(int(fd), o.level, o.opt); err != nil || got != o.want {
				t.Errorf("%s is %d, want %d (%v)", name, got, o.want, err)
			}
		}
	})
}

// TestAcceptedConnectionsFindDeadPeers: P4.15, on both planes, without a call
// for each connection.
func TestAcceptedConnectionsFindDeadPeers(t *testing.T) {
	ln, err := dataport.Listen(dataport.Endpoint{Scheme: dataport.SchemeTCP, Host: "127.0.0.1"}, dataport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	wantKeepAlive(t, far)
}
