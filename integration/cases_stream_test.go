package integration

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/controld/controld/sandbox"
)

// The cases are what users of comparable systems ran into, told in our own
// words: TestCase_Cnn is case nn. docs/cases.md lists all of them, those that
// do not apply too.

// noise returns n bytes without a pattern.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint64(88172645463325252)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}

// TestCase_C01: an upload that was answered is there, whatever its size, for
// another session and on the disk.
func TestCase_C01(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	up, other := p.client(t, d), p.client(t, d)
	if err := up.Mkdir(t.Context(), "u", sandbox.MkdirOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 17 << 10, 18 << 10, 19 << 10, 64 << 10, 1 << 20, 64 << 20} {
		want := noise(size)
		name := fmt.Sprintf("u/%d", size)
		info, err := up.WriteFileStream(t.Context(), name, bytes.NewReader(want), sandbox.WriteOptions{})
		if err != nil || info.Bytes != int64(size) {
			t.Fatalf("%d: %+v, %v", size, info, err)
		}
		s, err := other.ReadFileStream(t.Context(), name, sandbox.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, s); err != nil {
			t.Fatal(err)
		}
		s.Close()
		disk, err := os.ReadFile(filepath.Join(p.cwd(), name))
		if err != nil || !bytes.Equal(disk, want) || [32]byte(sum.Sum(nil)) != sha256.Sum256(want) {
			t.Fatalf("%d: the file differs: %v", size, err)
		}
	}
}

// TestCase_C02: 2,000,000 lines come whole or with a count of what was left
// out; never short and silent.
func TestCase_C02(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	for range 5 {
		res, err := sb.Exec(t.Context(), "seq 1 2000000", sandbox.ExecOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(len(res.Stdout)) + res.StdoutOmitted; got != 14888896 || !bytes.HasSuffix(res.Stdout, []byte("\n2000000\n")) {
			t.Fatalf("%d bytes accounted for", got)
		}
	}
}

// TestCase_C04: a line without an end keeps its end.
func TestCase_C04(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	sb := p.client(t, d)
	res, err := sb.Exec(t.Context(), `seq 1 3000000 | tr '\n' '|'; echo END`, sandbox.ExecOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(len(res.Stdout)) + res.StdoutOmitted; got != 22888900 || !bytes.HasSuffix(res.Stdout, []byte("|END\n")) {
		t.Fatalf("%d bytes accounted for", got)
	}
	// Output to a file and a stream of it: whole.
	if res, err = sb.Exec(t.Context(), `seq 1 3000000 | tr '\n' '|' > line; echo END >> line`, sandbox.ExecOptions{}); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	s, err := sb.ReadFileStream(t.Context(), "line", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, err := io.ReadAll(s)
	if err != nil || len(all) != 22888900 || !bytes.HasSuffix(all, []byte("|END\n")) {
		t.Fatalf("%d bytes, %v", len(all), err)
	}
}

// TestCase_C05: a client that is killed in the middle of an upload leaves the
// old file and nothing else. (A killed daemon: TestKilledDaemonIsSwept.)
func TestCase_C05(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	sb := p.client(t, d)
	if _, err := sb.WriteFile(t.Context(), "app.bin", []byte("v1"), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary(t), "cp", "-", ":app.bin")
	cmd.Env = append(os.Environ(), "CONTROLD_ADDR="+d.ready.Control[0], "CONTROLD_TOKEN="+p.secret)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	await(t, "the end of the transfer", func() bool { return metric(t, d, "controld_transfers_inflight") == 0 })
	if b, err := os.ReadFile(filepath.Join(p.cwd(), "app.bin")); err != nil || string(b) != "v1" {
		t.Fatalf("%q, %v", b, err)
	}
	if names, _ := os.ReadDir(p.cwd()); len(names) != 1 {
		t.Fatalf("left behind: %v", names)
	}
}

// TestCase_C06: a file that its writer may not read is replaced all the same.
func TestCase_C06(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	for _, content := range []string{"old", "new"} {
		if _, err := sb.WriteFile(t.Context(), "a", []byte(content), sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o200))}); err != nil {
			t.Fatal(err)
		}
		if _, err := sb.WriteFileStream(t.Context(), "b", strings.NewReader(content), sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o200))}); err != nil {
			t.Fatal(err)
		}
	}
	st, err := sb.Stat(t.Context(), "b", sandbox.StatOptions{})
	if err != nil || st.Mode != sandbox.Some(uint32(0o200)) || st.Size != sandbox.Some(int64(3)) {
		t.Fatalf("%+v, %v", st, err)
	}
}

// TestCase_C07: a source that fails half way is an error that says how far it
// came, on the socket and in the verdict.
func TestCase_C07(t *testing.T) {
	p := newPlace(t)
	d := p.start(t, "--traceable")
	sb := p.client(t, d)
	f := filepath.Join(p.cwd(), "f")
	if _, err := sb.WriteFile(t.Context(), "f", nil, sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(f, 100<<20); err != nil {
		t.Fatal(err)
	}
	tracer := trace(t, d, os.DevNull, "trace=sendfile", "-e", "inject=sendfile:error=EIO:when=3+")
	defer tracer.Wait()
	defer tracer.Process.Signal(syscall.SIGTERM)
	failed := false
	for range 20 { // each thread of the daemon counts for itself
		n, err := readWhole(t, sb, "f")
		if err == nil {
			if n != 100<<20 {
				t.Fatalf("%d bytes looked whole", n)
			}
			continue
		}
		failed = true
		if e := wantKind(t, err, sandbox.KindInternal); e.Errno != "EIO" || e.Bytes.Value >= 100<<20 {
			t.Fatalf("%+v", e)
		}
	}
	if !failed {
		t.Fatal("nothing was injected")
	}
}

// readWhole reads a stream to its end. A failure may come before there is one:
// the verdict is on its way from the mint on.
func readWhole(t *testing.T, sb sandbox.API, path string) (int64, error) {
	s, err := sb.ReadFileStream(t.Context(), path, sandbox.ReadOptions{})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	n, err := io.Copy(io.Discard, s)
	var e *sandbox.Error
	if err != nil && (!errors.As(err, &e) || !e.Bytes.Known) {
		t.Errorf("it does not say how far it came: %v", err)
	}
	return n, err
}

// TestCase_C08: stalled readers cost the daemon next to nothing, and their
// streams go on when they read.
func TestCase_C08(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	sb := p.client(t, d)
	if res, err := sb.Exec(t.Context(), "truncate -s 1G f", sandbox.ExecOptions{}); err != nil || res.ExitCode != 0 {
		t.Fatal(err)
	}
	before := metric(t, d, "process_resident_memory_bytes")
	const streams = 50
	open := make([]*sandbox.ReadStream, streams)
	for i := range open {
		s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := io.ReadFull(s, make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		open[i] = s
	}
	if grown := metric(t, d, "process_resident_memory_bytes") - before; grown > streams<<20 {
		t.Errorf("%d stalled streams cost %.0f bytes", streams, grown)
	}
	// With all of them stalled, a small call is answered.
	if _, err := sb.Stat(t.Context(), "f", sandbox.StatOptions{}); err != nil {
		t.Error(err)
	}
	n, err := io.Copy(io.Discard, open[0])
	if err != nil || n != 1<<30-64<<10 {
		t.Errorf("the stream goes on: %d, %v", n, err)
	}
}

// TestCase_C09: the first byte of a stream leaves before the file is read.
func TestCase_C09(t *testing.T) {
	p := newPlace(t)
	d := p.start(t, "--traceable")
	sb := p.client(t, d)
	if res, err := sb.Exec(t.Context(), "truncate -s 3G f", sandbox.ExecOptions{}); err != nil || res.ExitCode != 0 {
		t.Fatal(err)
	}
	before := readBytes(t, d)
	s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	// What lies in the buffers of two sockets may have been read.
	if got := readBytes(t, d) - before; got > 64<<20 {
		t.Errorf("%d bytes were read for one", got)
	}
}

// readBytes is what the daemon has read so far, see proc_pid_io(5).
func readBytes(t *testing.T, d *process) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", d.ready.PID))
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	if _, err := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCase_C10: holes are zeros; what cannot fit is refused before a byte.
func TestCase_C10(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	if res, err := sb.Exec(t.Context(), "truncate -s 2G f", sandbox.ExecOptions{}); err != nil || res.ExitCode != 0 {
		t.Fatal(err)
	}
	s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n, err := io.Copy(io.Discard, s); err != nil || n != 2<<30 {
		t.Fatalf("%d, %v", n, err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(p.cwd(), &fs); err != nil {
		t.Fatal(err)
	}
	size := int64(fs.Blocks)*int64(fs.Bsize) + 1<<30
	_, err = sb.WriteFileStream(t.Context(), "big", io.LimitReader(zeros{}, size), sandbox.WriteOptions{Size: sandbox.Some(size)})
	wantKind(t, err, sandbox.KindNoSpace)
	if ok, err := sb.Exists(t.Context(), "big", sandbox.ExistsOptions{}); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestCase_C56: many small files need no connection each.
func TestCase_C56(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	content := noise(2048)
	var wg sync.WaitGroup
	errs := make(chan error, 580)
	for i := range 580 {
		wg.Go(func() {
			name := fmt.Sprintf("d/%d", i)
			_, err := sb.WriteFile(t.Context(), name, content, sandbox.WriteOptions{})
			if err == nil {
				_, err = sb.WriteFileStream(t.Context(), name, bytes.NewReader(content), sandbox.WriteOptions{})
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := sb.ReadDir(t.Context(), "d", sandbox.ReadDirOptions{})
	if err != nil || len(l.Names) != 580 {
		t.Fatalf("%d names, %v", len(l.Names), err)
	}
}
