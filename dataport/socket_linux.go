package dataport

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledged returns how many bytes the peer's kernel has not
// acknowledged yet (SIOCOUTQ, see tcp(7)); false where the transport does not
// tell.
func unacknowledged(conn net.Conn) (n int, known bool) {
	control(conn, func(fd int) {
		v, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		n, known = v, err == nil
	})
	return n, known
}

// boundUnsent bounds in bytes what a socket takes ahead of its peer, which
// would otherwise be the whole of an auto-tuned buffer, several megabytes.
func boundUnsent(conn net.Conn, bytes int) {
	if _, ok := conn.(*net.TCPConn); !ok {
		return
	}
	control(conn, func(fd int) {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
	})
}

// paceSocket has the kernel send at most so many bytes a second.
func paceSocket(conn net.Conn, bytesPerSecond uint64) {
	if _, ok := conn.(*net.TCPConn); !ok {
		return
	}
	control(conn, func(fd int) {
		unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, bytesPerSecond)
	})
}

// peekNow tells whether a byte can be read without waiting; false, false
// where the connection has no descriptor.
func peekNow(conn net.Conn) (waits, known bool) {
	if !spliceable(conn) {
		return false, false
	}
	control(conn, func(fd int) {
		var b [1]byte
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		waits, known = err == nil && n > 0, true
	})
	return waits, known
}

// peerDead tells whether sent bytes have gone unacknowledged for the time in
// which dead peers must be noticed. TCP_USER_TIMEOUT would do that as well,
// but it also kills a peer that lives and merely does not read (a zero
// window), which may take the whole stall time.
//
// That needs more than one probe without an answer: a peer that does not read
// is asked ever more seldom, and the answer to the last one may be on its way.
func peerDead(conn net.Conn) (dead bool) {
	if _, ok := conn.(*net.TCPConn); !ok {
		return false
	}
	control(conn, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		silent := int64(info.Last_ack_recv) >= (DeadPeerTimeout - maxTick).Milliseconds()
		dead = silent && (info.Unacked > 0 && info.Retransmits > 0 || info.Probes > 2)
	})
	return dead
}

// listenConfig has connections inherit from their listener how dead peers are
// found, see tcp(7): to set it on each costs four system calls.
func listenConfig() net.ListenConfig {
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		failed := raw.Control(func(fd uintptr) { err = setKeepAlive(int(fd)) })
		return errors.Join(failed, err)
	}}
	lc.SetMultipathTCP(false) // which hands these options on in newer kernels alone
	return lc
}

func setKeepAlive(fd int) error {
	return errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAliveIdle.Seconds())),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAliveInterval.Seconds())),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveCount))
}

// PeerUID returns the user whose process connected a Unix socket; false for
// any other connection.
func PeerUID(conn net.Conn) (uid uint32, known bool) {
	if _, ok := conn.(*net.UnixConn); !ok {
		return 0, false
	}
	control(conn, func(fd int) {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			uid, known = cred.Uid, true
		}
	})
	return uid, known
}
