package server

import (
	"io"
	"net"
	"time"
)

// sniff tells a connection's plane by its first byte, which it leaves in
// place. Zero is a connection of neither plane, or of one not asked for.
func sniff(nc net.Conn, planes Planes, deadline time.Time) (net.Conn, Planes) {
	nc.SetReadDeadline(deadline)
	first, nc, err := peek(nc)
	if err != nil {
		return nc, 0
	}
	return nc, planeOf(first) & planes
}

func planeOf(first byte) Planes {
	switch first {
	case '{', '[', ' ', '\t', '\r', '\n':
		return Control
	case 'C':
		return Data
	}
	return 0
}

// peek returns the first byte of a connection and the connection, which still
// yields it: the bare one where the system can look without taking.
func peek(nc net.Conn) (byte, net.Conn, error) {
	if first, ok, err := peekSocket(nc); ok {
		return first, nc, err
	}
	var b [1]byte
	_, err := io.ReadFull(nc, b[:])
	return b[0], &peekedConn{Conn: nc, first: b[:]}, err
}

// peekedConn gives back bytes that were taken to look at them.
type peekedConn struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (c *peekedConn) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

// CloseWrite ends the sending side where the connection can.
func (c *peekedConn) CloseWrite() error { return closeWrite(c.Conn) }

// NetConn returns the connection underneath.
func (c *peekedConn) NetConn() net.Conn { return c.Conn }

func closeWrite(nc net.Conn) error {
	if c, ok := nc.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
