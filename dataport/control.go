package dataport

import (
	"net"
	"syscall"
)

// control runs f on the descriptor of a connection that has one.
func control(conn net.Conn, f func(fd int)) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { f(int(fd)) })
}
