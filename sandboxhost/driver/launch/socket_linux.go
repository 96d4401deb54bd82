package launch

import (
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"time"
)

// SocketName is the name of the agent's socket in its directory.
const SocketName = "agent.sock"

// SocketURL is the address of an agent that makes its socket in a directory, as
// the sandbox names that.
func SocketURL(dir string) string { return "unix://" + path.Join(dir, SocketName) }

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
	if err := os.Chmod(filepath.Join(dir, SocketName), 0o600); err != nil {
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
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), SocketName)}
}

// MakeLink makes the directory of an instance in which its agent, of that user,
// makes its socket; [KeepSocket] takes the socket from there.
func MakeLink(run string, uid, gid int) error {
	if err := os.Mkdir(LinkDir(run), 0o700); err != nil {
		return err
	}
	return os.Lchown(LinkDir(run), uid, gid)
}

// MakeState makes the directory in which an agent writes down what its next life
// has to remove, where that is not there yet. It is the user's who the agent is,
// and no workload's.
func MakeState(dir string, uid, gid int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return Own(dir, uid, gid)
}

// LinkDir is the directory that [MakeLink] makes.
func LinkDir(run string) string { return filepath.Join(run, "link") }

// keepEvery is how often KeepSocket looks.
const keepEvery = 2 * time.Millisecond

// KeepSocket waits until an agent accepts on the socket that it makes in its
// link directory, which its sandbox can write, and gives it a second name in the
// directory of its instance, which the sandbox cannot: whatever becomes of the
// first, [Dial] finds the agent. No command may run there before. It gives up
// when ctx ends or gone is closed.
func KeepSocket(ctx context.Context, run string, gone <-chan struct{}) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		conn, err := Dial(ctx, LinkDir(run))
		if err == nil {
			conn.Close()
			return os.Link(filepath.Join(LinkDir(run), SocketName), filepath.Join(run, SocketName))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agent does not listen: %w", err)
		case <-gone:
			return ErrEnded
		case <-tick.C:
		}
	}
}
