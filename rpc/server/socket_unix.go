//go:build unix

package server

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// peekSocket looks at the first byte of a bare socket without taking it; ok
// is false for any other connection.
func peekSocket(nc net.Conn) (first byte, ok bool, err error) {
	var sc syscall.Conn
	switch c := nc.(type) {
	case *net.TCPConn:
		sc = c
	case *net.UnixConn:
		sc = c
	default:
		return 0, false, nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, true, err
	}
	var b [1]byte
	var n int
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, rerr = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
			if !errors.Is(rerr, syscall.EINTR) {
				return !errors.Is(rerr, syscall.EAGAIN)
			}
		}
	})
	switch {
	case err != nil:
	case rerr != nil:
		err = rerr
	case n == 0:
		err = io.EOF
	}
	return b[0], true, err
}
