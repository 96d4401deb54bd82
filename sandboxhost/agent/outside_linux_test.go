package agent_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// outside runs an agent in no sandbox, with a descriptor 3, and returns the
// command and what it says first.
func outside(t *testing.T, url string, fd *os.File, env ...string) (cmd *exec.Cmd, said string) {
	t.Helper()
	cmd = exec.Command(program(t), command(t, url)...)
	cmd.Env, cmd.ExtraFiles = env, []*os.File{fd}
	return cmd, begin(t, cmd)
}

// command is what an agent in no sandbox is told.
func command(t *testing.T, url string) []string {
	return []string{"--listen", url, "--cwd", t.TempDir(), "--secret-sha256", fmt.Sprintf("%x", sha256.Sum256([]byte("secret")))}
}

// begin starts a command until the test ends, and returns what it says first.
func begin(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	line := make([]byte, 1024)
	n, _ := stderr.Read(line)
	go io.Copy(io.Discard, stderr)
	return strings.TrimSpace(string(line[:n]))
}

// filer is a listener or a connection.
type filer interface{ File() (*os.File, error) }

func fileOf(t *testing.T, f filer, err error) *os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	file, err := f.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// TestSocketThatIsHandedOver: it is accepted on, called what --listen says, and
// no other is made.
func TestSocketThatIsHandedOver(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "outside")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	fd := fileOf(t, ln, err)
	defer ln.Close()
	cmd, said := outside(t, "unix:///inside", fd, "LISTEN_FDS=1")
	if said != "controld: agent listens on unix:///inside" {
		t.Fatal(said)
	}
	sb, err := adapter.New(adapter.Options{Control: "unix://" + path, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	res, err := sb.Exec(t.Context(), "env | grep LISTEN; ls -l /proc/self/fd | grep -c socket", sandbox.ExecOptions{})
	if err != nil || string(res.Stdout) != "0\n" {
		t.Errorf("a command gets %s, %v", res.Stdout, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a socket of somebody else's is gone: %v", err)
	}
}

// TestSocketThatIsForAnother: descriptor 3 is left alone where LISTEN_PID names
// another process.
func TestSocketThatIsForAnother(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "other")})
	fd := fileOf(t, ln, err)
	defer ln.Close()
	url := "unix://" + filepath.Join(dir, "own")
	if _, said := outside(t, url, fd, "LISTEN_FDS=1", "LISTEN_PID=1"); said != "controld: agent listens on "+url {
		t.Fatal(said)
	}
	if _, err := os.Stat(filepath.Join(dir, "own")); err != nil {
		t.Error(err)
	}
}

// TestNoSocketIsHandedOver: anything but one Unix socket that listens is an
// error, not a reason to listen elsewhere.
func TestNoSocketIsHandedOver(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	tcpFile := fileOf(t, tcp, err)
	defer tcp.Close()
	bound, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "gram")})
	boundFile := fileOf(t, bound, err)
	defer bound.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	connected := os.NewFile(uintptr(pair[0]), "pair")
	defer connected.Close()
	for _, c := range []struct {
		name, count string
		fd          *os.File
		want        string
	}{
		{"a file", "1", file, "non-socket"},
		{"TCP", "1", tcpFile, "no Unix socket that listens"},
		{"datagrams", "1", boundFile, "no Unix socket that listens"},
		{"a connection", "1", connected, "no Unix socket that listens"},
		{"two", "2", boundFile, "2 sockets, want one"},
		{"no number", "x", boundFile, "x sockets, want one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, "s")
			cmd, said := outside(t, "unix://"+path, c.fd, "LISTEN_FDS="+c.count)
			if !strings.HasPrefix(said, "controld-agent: LISTEN_FDS: ") || !strings.Contains(said, c.want) {
				t.Fatalf("it says %q", said)
			}
			if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("it ends with %d", cmd.ProcessState.ExitCode())
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("it listens elsewhere: %v", err)
			}
		})
	}
}

// TestNothingOutlivesTheProgram: where it is not process 1 it has a keeper of
// its own.
func TestNothingOutlivesTheProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	cmd, said := outside(t, "unix://"+path, os.Stderr)
	if !strings.HasSuffix(said, path) {
		t.Fatal(said)
	}
	sb, err := adapter.New(adapter.Options{Control: "unix://" + path, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	res, err := sb.Exec(t.Context(), "setsid sleep 300 >/dev/null 2>&1 & echo $!", sandbox.ExecOptions{})
	if err != nil || !res.Background {
		t.Fatalf("%+v, %v", res, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	await(t, "the end of its command", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
