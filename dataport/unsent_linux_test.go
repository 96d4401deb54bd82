package dataport

import (
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
)

func TestUnsentShare(t *testing.T) {
	for n, want := range map[int64]int{1: 4 << 20, 128: 4 << 20, 512: 1 << 20, 1024: 512 << 10, 4096: 128 << 10, 1 << 20: 128 << 10} {
		if got := unsentShare(n); got != want {
			t.Errorf("send %d may leave %d bytes unsent, want %d", n, got, want)
		}
	}
}

// TestSendBoundsUnsent looks at the sockets of sends: one behind many others
// may take less ahead of its peer, and what has ended is not counted.
func TestSendBoundsUnsent(t *testing.T) {
	p := NewPump(PumpOptions{Stall: time.Minute})
	for _, c := range []struct {
		others int64
		want   int
	}{{0, 4 << 20}, {1023, 512 << 10}, {0, 4 << 20}} {
		p.sends.Add(c.others)
		conn := listening(t)
		bound := 0
		_, err := p.Send("", conn, strings.NewReader("x"), sandbox.Some(int64(1)), func() bool {
			bound = unsentBound(t, conn)
			return true
		})
		if err != errEnded || bound != c.want {
			t.Errorf("behind %d others: %v, %d bytes, want %d", c.others, err, bound, c.want)
		}
		p.sends.Add(-c.others)
	}
}

// listening returns a connection whose peer does nothing.
func listening(t *testing.T) net.Conn {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); ln.Close() })
	return conn
}

func unsentBound(t *testing.T, conn net.Conn) (bytes int) {
	control(conn, func(fd int) {
		var err error
		if bytes, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT); err != nil {
			t.Error(err)
		}
	})
	return bytes
}
