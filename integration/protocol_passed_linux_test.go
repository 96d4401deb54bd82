package integration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/agent"
	"github.com/controld/controld/sandboxhost/daemon"
)

// startWireAgent starts an agent in this process, for clients by bare lines. Its
// files are where a daemon's would be.
func startWireAgent(t *testing.T, listen string) *wireDaemon {
	t.Helper()
	d := &wireDaemon{t: t, cfg: wireConfig(t)}
	if err := os.MkdirAll(d.path(), 0o755); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	a := agent.Agent{Listen: listen, SecretSHA256: sha256.Sum256([]byte(wireSecret)), Cwd: d.path(), Version: "test", Ready: func(url string) { ready <- url }}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	select {
	case url := <-ready:
		d.ready.Control, d.ready.Data = []string{url}, []string{url}
	case err := <-over:
		t.Fatal(err)
	}
	return d
}

func startUnixAgent(t *testing.T) *wireDaemon {
	t.Helper()
	return startWireAgent(t, "unix://"+filepath.Join(t.TempDir(), "agent"))
}

// heldFile is a file that was handed over, with the connection that is its lease.
type heldFile struct {
	*os.File
	conn net.Conn
}

// ask asks for the file of a transfer; what comes along with the answer is
// returned with it.
func (k ticket) ask() (answer string, files []*os.File, conn net.Conn) {
	t := k.c.t
	t.Helper()
	conn = k.c.d.connect(k.c.d.ready.Data[0])
	if _, err := io.WriteString(conn, "CTRLF1 "+k.token+"\n"); err != nil {
		t.Fatal(err)
	}
	sock, ok := conn.(*net.UnixConn)
	if !ok {
		line, _ := io.ReadAll(conn)
		return string(line), nil, conn
	}
	b, oob := make([]byte, 64), make([]byte, 256)
	for !strings.HasSuffix(answer, "\n") {
		n, oobn, _, _, err := sock.ReadMsgUnix(b, oob)
		if err != nil {
			t.Fatalf("behind %q: %v", answer, err)
		}
		messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			fds, err := syscall.ParseUnixRights(&m)
			if err != nil || answer != "" {
				t.Fatalf("%v, behind %q", err, answer)
			}
			for _, fd := range fds {
				f := os.NewFile(uintptr(fd), "held")
				t.Cleanup(func() { f.Close() })
				files = append(files, f)
			}
		}
		answer += string(b[:n])
	}
	return answer, files, conn
}

// hold takes the file of a transfer over.
func (k ticket) hold() heldFile {
	k.c.t.Helper()
	answer, files, conn := k.ask()
	if answer != "FD\n" || len(files) != 1 {
		k.c.t.Fatalf("answered %q with %d files", answer, len(files))
	}
	return heldFile{files[0], conn}
}

// keeps wants the answer that there is no file, and the token to be good still.
func (k ticket) keeps() {
	k.c.t.Helper()
	for range 2 {
		if answer, files, _ := k.ask(); answer != "ERR unsupported\n" || len(files) > 0 {
			k.c.t.Fatalf("answered %q with %d files", answer, len(files))
		}
	}
	if _, line := k.c.d.answerTo("CTRLD1 " + k.token + "\n"); line != "OK\n" {
		k.c.t.Fatalf("and then %q", line)
	}
}

func (h heldFile) flags() int {
	n, _, _ := syscall.Syscall(syscall.SYS_FCNTL, h.Fd(), syscall.F_GETFL, 0)
	return int(n)
}

// silent wants nothing to have come on the lease, which is open.
func (h heldFile) silent(t *testing.T) {
	t.Helper()
	h.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	defer h.conn.SetReadDeadline(time.Now().Add(patience))
	if n, err := h.conn.Read(make([]byte, 1)); n != 0 || !os.IsTimeout(err) {
		t.Fatalf("%d bytes, %v on the lease", n, err)
	}
}

// TestWireFileRead: P11.12, P11.13, P11.17.
func TestWireFileRead(t *testing.T) {
	d := startUnixAgent(t)
	c := d.login()
	d.put("f", "what the file holds")
	k := c.mint("read_file_stream", obj{"path": "f", "offset": 5, "length": 3})
	h := k.hold()
	k.refused()
	if answer, files, _ := k.ask(); answer != "ERR token_invalid\n" || len(files) > 0 {
		t.Fatalf("the spent token: %q", answer)
	}
	if got := h.flags() & syscall.O_ACCMODE; got != syscall.O_RDONLY {
		t.Errorf("access mode %d", got)
	}
	b := make([]byte, 64)
	if n, err := h.ReadAt(b, 0); string(b[:n]) != "what the file holds" || err != io.EOF {
		t.Errorf("read %q, %v", b[:n], err)
	}
	h.silent(t)
	waiting := c.send("transfer_result", obj{"id": k.id})
	h.conn.Close()
	if r := c.wait(waiting); r.Error != nil || r.num("bytes") != 0 {
		t.Errorf("the outcome is %s", r.line)
	}
}

// TestWireFileWrite: P11.12, P11.14, P11.16.
func TestWireFileWrite(t *testing.T) {
	d := startUnixAgent(t)
	c := d.login()
	d.put("f", "old")
	k := c.mintWrite("f")
	h := k.hold()
	if got := h.flags() & (syscall.O_ACCMODE | syscall.O_APPEND); got != syscall.O_WRONLY {
		t.Errorf("flags %#x", got)
	}
	h.WriteAt([]byte("whole"), 0)
	h.silent(t)
	h.File.Close()
	if d.get("f") != "old" {
		t.Fatal("the file changed before its commit")
	}
	if r := k.commit(5); r.Error != nil || r.num("bytes") != 5 || d.get("f") != "whole" {
		t.Fatalf("%s, the file holds %q", r.line, d.get("f"))
	}
	if rest, err := io.ReadAll(h.conn); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v behind the commit", rest, err)
	}
	if r := k.commit(5); r.Error != nil || r.num("bytes") != 5 {
		t.Errorf("repeated: %s", r.line)
	}
	for name, n := range map[string]int{"fewer": 4, "more": 6} {
		k := c.mintWrite("f")
		h := k.hold()
		h.WriteAt([]byte("other"), 0)
		h.File.Close()
		k.commit(n).counts(t, 5, float64(n))
		if d.get("f") != "whole" {
			t.Errorf("%s: the file changed", name)
		}
	}
}

// TestWireFileLease: P11.14. The end of the lease without a commit is the end of
// the transfer, and an abort that of the lease.
func TestWireFileLease(t *testing.T) {
	d := startUnixAgent(t)
	c := d.login()
	k := c.mintWrite("f")
	h := k.hold()
	h.WriteAt([]byte("lost"), 0)
	waiting := c.send("transfer_result", obj{"id": k.id})
	h.conn.Close()
	c.wait(waiting).want(t, -32008, "aborted")
	k.commit(4).want(t, -32008, "aborted")
	d.put("r", "text")
	for _, k := range []ticket{c.mintWrite("f"), c.mintRead("r")} {
		h := k.hold()
		c.ok("transfer_abort", obj{"id": k.id})
		if rest, err := io.ReadAll(h.conn); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v behind an abort", rest, err)
		}
	}
	if names, err := os.ReadDir(d.path()); err != nil || len(names) != 1 {
		t.Errorf("left are %v, %v", names, err)
	}
}

// TestWireFileUnsupported: P11.10, P11.15. There is no file where something else
// has to be done with the bytes, and none that the other side could not trust.
func TestWireFileUnsupported(t *testing.T) {
	d := startUnixAgent(t)
	c := d.login()
	d.put("f", strings.Repeat("text", 100))
	c.mint("read_file_stream", obj{"path": "f", "digest": "sha256"}).keeps()
	c.mint("write_file_stream", obj{"path": "f", "digest": "sha256"}).keeps()
	c.mint("read_file_stream", obj{"path": "/proc/self/status"}).keeps()
	c.mintRead("f").hold()

	shm, err := os.MkdirTemp("/dev/shm", "controld-test-")
	if err != nil {
		t.Skipf("needs a tmpfs at /dev/shm: %v", err)
	}
	defer os.RemoveAll(shm)
	os.WriteFile(filepath.Join(shm, "f"), []byte("text"), 0o600)
	c.mint("write_file_stream", obj{"path": filepath.Join(shm, "new")}).keeps()
	c.mint("read_file_stream", obj{"path": filepath.Join(shm, "f")}).hold()
}

// TestWireFileNotOffered: P11.10, P11.20. A daemon hands nothing over, nor does
// an agent on another kind of connection.
func TestWireFileNotOffered(t *testing.T) {
	socket := "unix://" + filepath.Join(t.TempDir(), "data")
	for name, d := range map[string]*wireDaemon{
		"a daemon":     startWire(t, func(c *daemon.Config) { c.Data = []string{socket} }),
		"TCP":          startWireAgent(t, "tcp://127.0.0.1:0"),
		"a Unix agent": startUnixAgent(t),
	} {
		c := d.dial()
		said := c.ok("hello", obj{"protocol": 1, "token": wireSecret})
		offered := slices.Contains(said.Result["capabilities"].([]any), any("pass_files"))
		if offered != (name != "a daemon") {
			t.Errorf("%s: capabilities %v", name, said.Result["capabilities"])
		}
		d.put("f", "text")
		if name == "a Unix agent" {
			c.mintRead("f").hold()
			continue
		}
		c.mintRead("f").keeps()
		c.mintWrite("g").keeps()
	}
}

// TestWireFileOnce: P10.3 and P11.13. Of many who ask for one file, or for its
// bytes, one gets it.
func TestWireFileOnce(t *testing.T) {
	d := startUnixAgent(t)
	c := d.login()
	d.put("f", "text")
	for range 5 {
		k := c.mintRead("f")
		answers := make(chan string, 100)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range 100 {
			conn := d.connect(d.ready.Data[0])
			all.Go(func() {
				<-start
				fmt.Fprintf(conn, "CTRL%c1 %s\n", "DF"[i%2], k.token)
				line := make([]byte, 3)
				io.ReadFull(conn, line)
				answers <- string(line)
				conn.Close()
			})
		}
		close(start)
		all.Wait()
		got := map[string]int{}
		for range 100 {
			got[<-answers]++
		}
		if got["ERR"] != 99 {
			t.Fatalf("got %v", got)
		}
	}
}

// TestWireFilesOfClients: P11.18. What a client sends along is closed unseen, on
// both planes: the far end of a pipe tells.
func TestWireFilesOfClients(t *testing.T) {
	d := startUnixAgent(t)
	c := d.login()
	d.put("f", "text")
	hello := `{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"token":"` + wireSecret + `"}}` + "\n"
	for name, line := range map[string]string{
		"for bytes":      "CTRLD1 " + c.mintRead("f").token + "\n",
		"for a file":     "CTRLF1 " + c.mintRead("f").token + "\n",
		"for a write":    "CTRLF1 " + c.mintWrite("f").token + "\n",
		"a wrong token":  "CTRLF1 " + strings.Repeat("A", 43) + "\n",
		"no preamble":    "CTRLX1 " + strings.Repeat("A", 43) + "\n",
		"a control line": hello,
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		conn := d.connect(d.ready.Data[0]).(*net.UnixConn)
		if _, _, err := conn.WriteMsgUnix([]byte(line[:1]), syscall.UnixRights(int(w.Fd())), nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.WriteMsgUnix([]byte(line[1:]), syscall.UnixRights(int(w.Fd())), nil); err != nil {
			t.Fatal(err)
		}
		w.Close()
		conn.Read(make([]byte, 1)) // it has been read by now, or refused
		r.SetReadDeadline(time.Now().Add(patience))
		if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: %d bytes, %v: somebody holds the pipe", name, n, err)
		}
		r.Close()
		conn.Close()
	}
}
