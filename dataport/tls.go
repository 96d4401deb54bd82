package dataport

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
)

// tlsListener asks for its configuration anew for each connection, so that
// certificates can be replaced while it listens.
type tlsListener struct {
	net.Listener
	config func() *tls.Config
}

// Accept implements net.Listener.
func (l *tlsListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(&paced{Conn: conn, left: handshakeMost}, l.config()), nil
}

// handshakeMost is how many bytes a stranger may send, handshake and all: TLS
// would keep a certificate of 256 KiB before it looked at it.
const handshakeMost = 64 << 10

// errHandshakeLong ends the connection of a stranger who sends more.
var errHandshakeLong = errors.New("too many bytes for a handshake")

// Trust lets a connection that [Listen] accepted with TLS receive without
// bound. Whoever takes it on says so once its handshake is done.
func Trust(conn net.Conn) {
	if p := pacedBelow(conn); p != nil {
		p.trusted.Store(true)
	}
}

// paced is the connection below TLS. A write that ran into its deadline is the
// end of a TLS connection, but a pump uses deadlines to look up from a write
// that does not move; so it is asked here whether to go on.
type paced struct {
	net.Conn
	// look judges every write, while a pump writes.
	look atomic.Pointer[func(n int, err error) error]
	// left is how much may be received before it is trusted.
	left    int
	trusted atomic.Bool
}

// Read implements net.Conn.
func (c *paced) Read(b []byte) (int, error) {
	if c.trusted.Load() {
		return c.Conn.Read(b)
	}
	if c.left <= 0 {
		return 0, errHandshakeLong
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// Write implements net.Conn.
func (c *paced) Write(b []byte) (int, error) {
	written := 0
	for {
		n, err := c.Conn.Write(b[written:])
		written += n
		look := c.look.Load()
		if look == nil {
			return written, err
		}
		if stop := (*look)(n, err); stop != nil {
			return written, stop
		}
		if err == nil {
			return written, nil
		}
	}
}

// NetConn returns the connection underneath.
func (c *paced) NetConn() net.Conn { return c.Conn }

// layered is a connection on top of another.
type layered interface{ NetConn() net.Conn }

// Bare returns the connection of the transport below TLS and the like, or conn
// itself.
func Bare(conn net.Conn) net.Conn {
	for {
		over, ok := conn.(layered)
		if !ok {
			return conn
		}
		conn = over.NetConn()
	}
}

// TLSOf returns the TLS layer of a connection, nil where it has none.
func TLSOf(conn net.Conn) *tls.Conn {
	for {
		if c, ok := conn.(*tls.Conn); ok {
			return c
		}
		over, ok := conn.(layered)
		if !ok {
			return nil
		}
		conn = over.NetConn()
	}
}

// pacedBelow returns the paced connection below TLS, nil where there is none.
func pacedBelow(conn net.Conn) *paced {
	if c := TLSOf(conn); c != nil {
		p, _ := c.NetConn().(*paced)
		return p
	}
	return nil
}
