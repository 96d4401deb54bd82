package integration

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
)

// traced is what the calls of a process moved, by strace(1).
type traced struct {
	sendfile, splice int64
	// largest is the most that one read, write, sendto or recvfrom moved,
	// copied what all of the reads did.
	largest, copied int64
}

const tracedCalls = "trace=sendfile,splice,read,write,sendto,recvfrom"

var traceLine = regexp.MustCompile(`(sendfile|splice|read|write|sendto|recvfrom)(\(| resumed>).* = (\d+)$`)

func readTrace(t *testing.T, path string) traced {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var sum traced
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := traceLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		n, _ := strconv.ParseInt(m[3], 10, 64)
		switch m[1] {
		case "sendfile":
			sum.sendfile += n
		case "splice":
			sum.splice += n
		case "read", "recvfrom":
			sum.copied += n
			fallthrough
		default:
			sum.largest = max(sum.largest, n)
		}
	}
	return sum
}

// TestZeroCopy streams 1 GiB each way between two processes under strace: the
// bytes go by sendfile and splice, on both sides.
func TestZeroCopy(t *testing.T) {
	const size = 1 << 30
	p := newPlace(t)
	daemonTrace := filepath.Join(p.dir, "daemon.trace")
	d := p.start(t, "--traceable")
	tracer := trace(t, d, daemonTrace, tracedCalls)

	src := filepath.Join(p.dir, "src")
	if err := os.WriteFile(src, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(src, size); err != nil {
		t.Fatal(err)
	}
	upTrace, downTrace := filepath.Join(p.dir, "up.trace"), filepath.Join(p.dir, "down.trace")
	cp := func(to string, args ...string) {
		cmd := exec.Command("strace", append([]string{"-f", "-e", tracedCalls, "-o", to, binary(t), "cp"}, args...)...)
		cmd.Env = append(os.Environ(), "CONTROLD_ADDR="+d.ready.Control[0], "CONTROLD_TOKEN="+p.secret)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cp %v: %v: %s", args, err, out)
		}
	}
	cp(upTrace, src, ":f")
	cp(downTrace, ":f", filepath.Join(p.dir, "back"))
	d.kill(t, syscall.SIGTERM)
	if code := d.exitCode(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	tracer.Wait()

	up, down, both := readTrace(t, upTrace), readTrace(t, downTrace), readTrace(t, daemonTrace)
	t.Logf("of %d bytes each way: client up sendfile %d; client down splice %d; daemon sendfile %d, splice %d; largest read or write %d, %d, %d",
		size, up.sendfile, down.splice/2, both.sendfile, both.splice/2, up.largest, down.largest, both.largest)
	const most = size / 100 * 99
	// A byte is spliced twice, into the pipe and out of it.
	for name, n := range map[string]int64{"client up": up.sendfile, "client down": down.splice / 2, "daemon down": both.sendfile, "daemon up": both.splice / 2} {
		if n < most {
			t.Errorf("%s: only %d of %d bytes stayed in the kernel", name, n, size)
		}
	}
	for name, tr := range map[string]traced{"client up": up, "client down": down, "daemon": both} {
		if tr.largest > 64<<10 {
			t.Errorf("%s: a read or write of %d bytes", name, tr.largest)
		}
	}
}
