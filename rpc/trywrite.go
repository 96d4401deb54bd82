//go:build unix

package rpc

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// tryWriter writes what a socket takes at once, without waiting.
type tryWriter struct {
	raw syscall.RawConn
	buf []byte
	n   int
	err error
	// step is called by raw; it is kept so that a write allocates nothing.
	step func(fd uintptr) bool
}

// newTryWriter returns nil where conn is no bare socket.
func newTryWriter(conn io.Writer) *tryWriter {
	var sc syscall.Conn
	switch c := conn.(type) {
	case *net.TCPConn:
		sc = c
	case *net.UnixConn:
		sc = c
	default:
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	t := &tryWriter{raw: raw}
	t.step = func(fd uintptr) bool {
		for {
			t.n, t.err = syscall.Write(int(fd), t.buf)
			if !errors.Is(t.err, syscall.EINTR) {
				return true
			}
		}
	}
	return t
}

// write returns how much was taken; fewer than all without an error means
// that the peer has to read first.
func (t *tryWriter) write(b []byte) (int, error) {
	t.buf = b
	err := t.raw.Write(t.step)
	t.buf = nil
	switch {
	case err != nil:
		return 0, err
	case errors.Is(t.err, syscall.EAGAIN):
		return 0, nil
	}
	return max(t.n, 0), t.err
}
