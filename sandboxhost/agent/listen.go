package agent

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/dataport"
)

// listen returns what to accept on, and what it is called. Who made a socket
// that was handed over has decided who reaches it: often a user that has no
// name in here.
func (a Agent) listen() (net.Listener, dataport.Endpoint, error) {
	e, err := dataport.ParseEndpoint(a.Listen)
	if err != nil {
		return nil, e, err
	}
	if !e.Private() && !a.Insecure {
		return nil, e, fmt.Errorf("listen: %s would speak in the clear beyond this machine; say --insecure if that is meant", a.Listen)
	}
	ln, err := given()
	if err != nil {
		return nil, e, fmt.Errorf("LISTEN_FDS: %w", err)
	}
	if ln != nil {
		return ln, e, nil
	}
	// Seen from in here the host may be of any user, or of none.
	return dataport.ListenURL(a.Listen, dataport.ListenOptions{AnyUser: true})
}

// givenFD is the first descriptor that is handed over, see sd_listen_fds(3).
const givenFD = 3

// given returns the one Unix socket that was handed over to this process, nil
// where none was. Who starts a process in a namespace of its own may not know
// its number, so LISTEN_PID need not be there. Commands get neither the
// descriptor nor the variables, as they get nothing else of this process's.
func given() (net.Listener, error) {
	count, pid := os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_PID")
	if count == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if count != "1" {
		return nil, fmt.Errorf("%s sockets, want one", count)
	}
	listens, err := unix.GetsockoptInt(givenFD, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return nil, os.NewSyscallError("getsockopt", err)
	}
	f := os.NewFile(givenFD, "LISTEN_FDS")
	defer f.Close()
	ln, err := net.FileListener(f) // a copy of the descriptor
	if err != nil {
		return nil, err
	}
	if ln.Addr().Network() != "unix" || listens == 0 {
		ln.Close()
		return nil, fmt.Errorf("descriptor %d is no Unix socket that listens", givenFD)
	}
	return ln, nil
}
