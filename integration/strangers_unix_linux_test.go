package integration

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandboxhost/daemon"
)

// TestStrangersOfOtherUsers: P1.16. The mode of a Unix socket is not all that
// keeps others away.
func TestStrangersOfOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	const nobody = 65534
	for name, allowed := range map[string][]int{"root alone": nil, "nobody too": {nobody}} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "u")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			d := startWire(t, func(c *daemon.Config) {
				c.Control, c.UnixAllowUID = []string{"unix://" + dir + "/c"}, allowed
			})
			for path, mode := range map[string]os.FileMode{dir: 0o755, dir + "/c": 0o666} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := pingAs(t, nobody, dir+"/c"), len(allowed) > 0; got != want {
				t.Errorf("nobody is answered: %v", got)
			}
			d.login()
		})
	}
}

// pingAs tells whether a user's ping over a Unix socket is answered.
func pingAs(t *testing.T, uid int, path string) bool {
	t.Helper()
	answered := make(chan bool, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends as somebody else
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(fd)
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				err = errno
			}
		}
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		if err != nil {
			t.Error(err)
			answered <- false
			return
		}
		unix.Write(fd, []byte(pingLine))
		b := make([]byte, 64)
		n, _ := unix.Read(fd, b)
		answered <- n > 0
	}()
	return <-answered
}
