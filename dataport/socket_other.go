//go:build !linux

package dataport

import (
	"net"
	"syscall"
)

// unacknowledged is not to be had on this system: a sender waits for its peer.
func unacknowledged(net.Conn) (int, bool) { return 0, false }

// boundUnsent is not to be had on this system.
func boundUnsent(net.Conn, int) {}

// peekNow tells whether a byte can be read without waiting.
func peekNow(conn net.Conn) (waits, known bool) {
	if !spliceable(conn) {
		return false, false
	}
	control(conn, func(fd int) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(fd, b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		waits, known = err == nil && n > 0, true
	})
	return waits, known
}

// peerDead leaves it to keepalive.
func peerDead(net.Conn) bool { return false }

// listenConfig has keepalive set on each connection.
func listenConfig() net.ListenConfig { return net.ListenConfig{KeepAliveConfig: KeepAlive()} }

// paceSocket is not to be had on this system.
func paceSocket(net.Conn, uint64) {}
