package launch

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// socketName is the name of the agent's socket in the directory of an instance.
const socketName = "agent.sock"

// Listen makes the Unix socket of an instance in its directory and returns it
// as a file for a child to inherit. The agent accepts on it, so no path of it
// need exist inside the sandbox. The caller closes the file; the name stays
// until the directory goes.
func Listen(dir string) (*os.File, error) {
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	ln, err := net.ListenUnix("unix", address(at))
	if err != nil {
		return nil, fmt.Errorf("agent socket in %s: %w", dir, err)
	}
	ln.SetUnlinkOnClose(false)
	defer ln.Close()
	if err := os.Chmod(filepath.Join(dir, socketName), 0o600); err != nil {
		return nil, err
	}
	return ln.File()
}

// Dial connects to the socket that [Listen] made.
func Dial(ctx context.Context, dir string) (net.Conn, error) {
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	var d net.Dialer
	return d.DialContext(ctx, "unix", address(at).Name)
}

// address names the socket through a descriptor of its directory: the path of a
// socket holds 107 bytes, see unix(7).
func address(dir *os.File) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)}
}
