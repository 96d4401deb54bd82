package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// mount mounts and sees to it that the mount goes with the test.
func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestWireMountPoint: P8.13.
func TestWireMountPoint(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	d.put("other", "below")
	d.put("f", "hidden")
	mount(t, d.path("other"), d.path("f"), "", syscall.MS_BIND, "")
	before := c.etag("f")
	r := c.ok("write_file", obj{"path": "f", "content": text("in place")})
	if r.Result["atomic"] != false || r.num("bytes") != 8 || d.get("other") != "in place" || r.str("etag") == before || r.str("etag") != c.etag("f") {
		t.Fatalf("got %s", r.line)
	}
	k := c.mintWrite("f")
	k.open("stream")
	k.commit(6).want(t, -32004, "busy")
	if d.get("other") != "in place" {
		t.Fatalf("the stream left %q", d.get("other"))
	}
}

// TestWireNoSpace: P8.34 and P6.2. What does not fit fails at the mint, where a
// size was named, else with the verdict.
func TestWireNoSpace(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.ok("mkdir", obj{"path": "small"})
	mount(t, "tmpfs", d.path("small"), "tmpfs", 0, "size=1m")
	c.fails("write_file_stream", obj{"path": "small/f", "size": 8 << 20}, -32005, "no_space")
	k := c.mintWrite("small/f")
	conn := k.open("")
	go conn.Write(make([]byte, 8<<20)) // cut short by the daemon
	k.commit(8<<20).want(t, -32005, "no_space")
	c.fails("write_file", obj{"path": "small/f", "content": text(strings.Repeat("x", 4<<20))}, -32005, "no_space")
	if names, err := os.ReadDir(d.path("small")); err != nil || len(names) > 0 {
		t.Fatalf("left: %v, %v", names, err)
	}
	c.ok("write_file", obj{"path": "small/f", "content": text("fits")})
}

// TestWireSyncReachesTheDisk: P8.10, seen by strace(1): the data, the name, the
// directory, in this order, each behind the end of the one before, and the
// answer behind them all.
func TestWireSyncReachesTheDisk(t *testing.T) {
	p := newPlace(t)
	proc := p.start(t, "--traceable")
	d := &wireDaemon{t: t, ready: proc.ready}
	d.cfg.StateDir = filepath.Join(p.dir, "state")
	c := d.login(obj{"token": p.secret})
	c.writeFile("f", "old")
	path := filepath.Join(p.dir, "trace")
	tracer := trace(t, proc, path, "trace=fsync,fdatasync,linkat,renameat,renameat2,write,writev,sendto,sendmsg")
	k := c.mint("write_file_stream", obj{"path": "f", "sync": true})
	k.open("stream")
	k.commit(6)
	c.ok("write_file", obj{"path": "f", "content": text("buffered"), "sync": true})
	c.ok("write_file", obj{"path": "f", "content": text("lazy")})
	proc.kill(t, syscall.SIGTERM)
	proc.exitCode(t)
	tracer.Wait()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const minted, rename, answer = "answer ", "renameat ended ", "answer "
	const durable = "fsync ended " + rename + "fsync ended "
	if got, want := diskCalls(string(b)), minted+durable+answer+durable+answer+rename+answer; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

var (
	callBegins = regexp.MustCompile(`^\d+ +(fsync|fdatasync|renameat)2?\(`)
	callEnds   = regexp.MustCompile(`^\d+ +<\.\.\. (fsync|fdatasync|renameat)2? resumed>`)
	answerGoes = regexp.MustCompile(`^\d+ +(write|writev|sendto|sendmsg)\(.*"\{\\"jsonrpc\\"`)
)

// diskCalls returns what a trace says of disk and answers, one word for the
// beginning of a call and one for its end, which strace tells apart where
// another thread does something meanwhile.
func diskCalls(trace string) string {
	var out strings.Builder
	for line := range strings.Lines(trace) {
		if m := callBegins.FindStringSubmatch(line); m != nil {
			out.WriteString(m[1] + " ")
			if !strings.Contains(line, "<unfinished ...>") {
				out.WriteString("ended ")
			}
		}
		switch {
		case callEnds.MatchString(line):
			out.WriteString("ended ")
		case answerGoes.MatchString(line):
			out.WriteString("answer ")
		}
	}
	return out.String()
}
