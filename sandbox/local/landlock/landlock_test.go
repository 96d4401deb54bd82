//go:build linux

package landlock

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// deedsEnv makes this program one that does what it may not: it says where, which
// abstract socket there is, and what may be written, if it is restricted at all.
const deedsEnv = "LANDLOCK_TEST_DEEDS"

func TestMain(m *testing.M) {
	if says := os.Getenv(deedsEnv); says != "" {
		os.Exit(deeds(strings.Split(says, " ")))
	}
	os.Exit(m.Run())
}

// deeds prints what was refused.
func deeds(says []string) int {
	dir, socket, writable := says[0], says[1], says[2:]
	runtime.LockOSThread()
	if len(writable) > 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			fmt.Println(err)
			return 1
		}
		if err := Restrict(writable); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	for _, deed := range list(dir, socket) {
		switch err := deed.do(); err {
		case nil, unix.ENOTTY:
		case unix.EACCES, unix.EPERM, unix.EXDEV:
			fmt.Println(deed.name)
		default:
			fmt.Println(deed.name, "failed:", err)
		}
	}
	return 0
}

// deed is one right, by what needs it.
type deed struct {
	name string
	do   func() error
}

func list(dir, socket string) []deed {
	at := func(name string) string { return filepath.Join(dir, name) }
	open := func(path string, flags int) error {
		fd, err := unix.Open(path, flags, 0o600)
		unix.Close(fd)
		return err
	}
	return []deed{
		{"write a file", func() error { return open(at("file"), unix.O_WRONLY) }},
		{"truncate a file", func() error { return unix.Truncate(at("file"), 0) }},
		{"ioctl on a device", func() error {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
			if err == nil {
				_, err = unix.IoctlGetTermios(fd, unix.TCGETS)
			}
			return err
		}},
		{"remove a file", func() error { return unix.Unlink(at("gone")) }},
		{"remove a directory", func() error { return unix.Rmdir(at("empty")) }},
		{"make a file", func() error { return open(at("new"), unix.O_CREAT|unix.O_EXCL|unix.O_RDONLY) }},
		{"make a directory", func() error { return unix.Mkdir(at("newdir"), 0o700) }},
		{"make a link", func() error { return unix.Symlink("file", at("newlink")) }},
		{"make a pipe", func() error { return unix.Mkfifo(at("newpipe"), 0o600) }},
		{"make a socket", func() error { return unix.Mknod(at("newsocket"), unix.S_IFSOCK|0o600, 0) }},
		{"make a device", func() error { return unix.Mknod(at("newdevice"), unix.S_IFCHR|0o600, 0) }},
		{"link to another directory", func() error { return unix.Link(at("a/file"), at("b/file")) }},
		{"connect to an abstract socket", func() error { return dial(socket) }},
		{"signal a process outside", func() error { return unix.Kill(unix.Getppid(), 0) }},
	}
}

func dial(socket string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + socket})
}

// refused has a process do all deeds and returns what was refused to it.
func refused(t *testing.T, where string, writable ...string) []string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"empty", "a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "gone", "a/file"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Base(dir) + filepath.Base(filepath.Dir(dir))
	ln, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if where != "" {
		writable = append(writable, dir)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), deedsEnv+"="+strings.Join(append([]string{dir, name}, writable...), " "))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// TestRestrict: without Landlock all deeds are done; with it none is but beneath
// what is named, and there all that is done to files.
func TestRestrict(t *testing.T) {
	if v := Version(); v < scopesSince {
		t.Skipf("needs Landlock of version %d, this kernel has %d", scopesSince, v)
	}
	if got := strings.Join(refused(t, ""), "; "); got != "" {
		t.Errorf("unrestricted it was refused: %s", got)
	}
	var all []string
	for _, d := range list("", "") {
		all = append(all, d.name)
	}
	if got := strings.Join(refused(t, "", t.TempDir()), "; "); got != strings.Join(all, "; ") {
		t.Errorf("it was refused: %s", got)
	}
	if got := strings.Join(refused(t, "beneath", "/dev/null"), "; "); got != "connect to an abstract socket; signal a process outside" {
		t.Errorf("beneath what is named it was refused: %s", got)
	}
}

// TestHandled: a kernel is asked for nothing that it does not know.
func TestHandled(t *testing.T) {
	for version, want := range map[int]uint64{2: 0x3fff, 3: 0x7fff, 4: 0x7fff, 5: 0xffff, 7: 0xffff} {
		if got := handled(version); got != want {
			t.Errorf("%d: %x, not %x", version, got, want)
		}
	}
}

// TestRestrictNeedsNoNewPrivileges: it is an error where it does not hold.
func TestRestrictNeedsNoNewPrivileges(t *testing.T) {
	if Version() < usable || os.Geteuid() == 0 {
		t.Skip("needs Landlock, and an ordinary user")
	}
	if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || on == 1 {
		t.Skip("this process has no new privileges already")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // which would be restricted
		done <- Restrict([]string{"/tmp"})
	}()
	if err := <-done; err == nil || !strings.Contains(err.Error(), syscall.EPERM.Error()) {
		t.Error(err)
	}
}
