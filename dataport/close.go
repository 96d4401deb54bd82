package dataport

import (
	"net"
	"time"
)

// LingerBytes and LingerTime are what a closer reads and drops so that its last
// bytes are not eaten by a reset: a close with unread input would reset.
const (
	LingerBytes = 1 << 20
	LingerTime  = time.Second
)

// closeWriter is a connection that can end its sending side alone.
type closeWriter interface{ CloseWrite() error }

// CloseWrite ends the sending side of conn where its transport can.
func CloseWrite(conn net.Conn) {
	if cw, ok := conn.(closeWriter); ok {
		cw.CloseWrite()
	}
}

// CloseLinger closes conn after a last answer: it shuts the sending side
// down, reads and drops up to 1 MiB or 1 s, then closes.
func CloseLinger(conn net.Conn) {
	CloseWrite(conn)
	conn.SetReadDeadline(time.Now().Add(LingerTime))
	var drop [4 << 10]byte // small: whoever was refused holds it
	for n := 0; n < LingerBytes; {
		got, err := conn.Read(drop[:])
		n += got
		if err != nil {
			break
		}
	}
	conn.Close()
}

// Reset closes conn so that the peer sees an error where the transport knows
// one (TCP). It is a hint, never the verdict.
func Reset(conn net.Conn) {
	bare := Bare(conn)
	if tcp, ok := bare.(*net.TCPConn); ok {
		tcp.SetLinger(0)
		bare.Close() // below TLS, which would say goodbye first
	}
	conn.Close()
}

// closeGrace is how long a sender that has nothing left waits for its peer to
// close before it looks whether everything was acknowledged.
const closeGrace = 5 * time.Second

// CloseSent closes conn after the last byte of a read: it shuts the sending
// side down and waits for the client to close. It closes first only when the
// transport has everything acknowledged, or after stall. What the client
// sends is dropped.
func CloseSent(conn net.Conn, stall time.Duration) {
	conn.SetDeadline(time.Time{})
	CloseWrite(conn)
	var buf [512]byte // nothing is expected
	defer conn.Close()
	for end := time.Now().Add(stall); time.Now().Before(end); {
		conn.SetReadDeadline(earlier(end, time.Now().Add(closeGrace)))
		_, err := conn.Read(buf[:])
		if err == nil {
			continue
		}
		if !isTimeout(err) {
			return
		}
		if unsent, known := unacknowledged(Bare(conn)); known && unsent == 0 {
			return
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
