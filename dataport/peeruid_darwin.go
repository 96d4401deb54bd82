package dataport

import (
	"net"

	"golang.org/x/sys/unix"
)

// PeerUID returns the user whose process connected a Unix socket; false for
// any other connection.
func PeerUID(conn net.Conn) (uid uint32, known bool) {
	if _, ok := conn.(*net.UnixConn); !ok {
		return 0, false
	}
	control(conn, func(fd int) {
		cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if err == nil {
			uid, known = cred.Uid, true
		}
	})
	return uid, known
}
