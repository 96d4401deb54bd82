package integration

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// moved is how many bytes a process has read and written, by whatever call.
func moved(t testing.TB, pid int) (n int64) {
	t.Helper()
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/io")
	if err != nil {
		t.Skipf("needs the I/O counts of processes: %v", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ": "); name == "rchar" || name == "wchar" {
			v, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
	}
	return n
}

// sparse makes a file of zeros.
func sparse(t testing.TB, path string, size int64) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// TestPassedFilesZeroCopy moves 1 GiB each way through a front and an agent: the
// front's bytes go by sendfile and splice, and the agent's not at all.
func TestPassedFilesZeroCopy(t *testing.T) {
	const size = 1 << 30
	h := startHops(t, true)
	frontTrace := filepath.Join(t.TempDir(), "trace")
	tracer := trace(t, h.front, frontTrace, tracedCalls)
	sparse(t, filepath.Join(h.dir, "f"), size)
	src := filepath.Join(t.TempDir(), "src")
	sparse(t, src, size)
	before := moved(t, h.agent.ready.PID)
	cp := func(args ...string) {
		cmd := exec.Command(binary(t), append([]string{"cp"}, args...)...)
		cmd.Env = append(os.Environ(), "CONTROLD_ADDR="+h.url, "CONTROLD_TOKEN=secret")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cp %v: %v: %s", args, err, out)
		}
	}
	cp(":f", filepath.Join(t.TempDir(), "back"))
	cp(src, ":g")
	agent := moved(t, h.agent.ready.PID) - before
	h.front.kill(t, syscall.SIGTERM)
	<-h.front.exited
	tracer.Wait()
	front := readTrace(t, frontTrace)
	t.Logf("of %d bytes each way: front sendfile %d, splice %d, largest read or write %d; the agent moved %d", size, front.sendfile, front.splice/2, front.largest, agent)
	if st, err := os.Stat(filepath.Join(h.dir, "g")); err != nil || st.Size() != size {
		t.Errorf("%v, %v", st, err)
	}
	// A byte is spliced twice, into the pipe and out of it.
	if front.sendfile < size || front.splice < 2*size || front.largest > 64<<10 {
		t.Error("not all bytes stayed in the kernel")
	}
	if agent > 1<<20 {
		t.Errorf("the agent moved %d bytes", agent)
	}
}

// TestPassedFileOfAStoppedAgent: P11.17. A file that was taken over needs its
// agent no more, nor does the verdict on it.
func TestPassedFileOfAStoppedAgent(t *testing.T) {
	const size = 3 << 30
	h := startHops(t, true)
	sparse(t, filepath.Join(h.dir, "f"), size)
	sb := h.client(t)
	s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.ReadFull(s, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	before := moved(t, h.agent.ready.PID)
	h.agent.kill(t, syscall.SIGSTOP)
	began := time.Now()
	n, err := s.WriteTo(io.Discard)
	if n != size-1<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	after := moved(t, h.agent.ready.PID) - before
	t.Logf("%d bytes and a verdict in %v beside a stopped agent, which moved %d", n, time.Since(began), after)
	if after > 1<<20 {
		t.Errorf("the agent moved %d bytes", after)
	}
	h.agent.kill(t, syscall.SIGCONT)
	if _, err := sb.Stat(t.Context(), "f", sandbox.StatOptions{}); err != nil {
		t.Errorf("behind that: %v", err)
	}
}

// TestPassedFilesTwoHops: the bytes are the right ones, and a killed agent takes
// an upload with it, but no download.
func TestPassedFilesTwoHops(t *testing.T) {
	h := startHops(t, true)
	sb := h.client(t)
	if info, err := sb.Info(t.Context()); err != nil || slices.Contains(info.Capabilities, sandbox.CapPassFiles) {
		t.Errorf("the front offers %v, %v", info.Capabilities, err)
	}
	content := strings.Repeat("0123456789abcdef", 400_000)
	for _, size := range []int{0, 1, 60_000, len(content)} {
		if _, err := sb.WriteFileStream(t.Context(), "f", strings.NewReader(content[:size]), sandbox.WriteOptions{Digest: size%2 == 1}); err != nil {
			t.Fatal(err)
		}
		s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if n, err := io.Copy(sum, s); n != int64(size) || err != nil {
			t.Errorf("%d of %d bytes, %v", n, size, err)
		}
		if want := sha256.Sum256([]byte(content[:size])); fmt.Sprintf("%x", sum.Sum(nil)) != fmt.Sprintf("%x", want) {
			t.Errorf("of %d bytes others came back", size)
		}
	}
	s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	k, err := sb.OpenWrite(t.Context(), "g", sandbox.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.agent.kill(t, syscall.SIGKILL)
	<-h.agent.exited
	if text, err := io.ReadAll(s); string(text) != content || err != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	io.WriteString(k.Writer(), "x")
	if _, err := k.Commit(t.Context(), sandbox.Commit{Bytes: 1}); err == nil {
		t.Error("an upload to an agent that is dead")
	}
	if names, _ := os.ReadDir(h.dir); len(names) != 1 {
		t.Errorf("left are %v", names)
	}
}

// BenchmarkHops moves 1 GiB down and up: straight to an agent, and through a front
// with and without the handing over of files. The ratios are to one hop.
func BenchmarkHops(b *testing.B) {
	const size = 1 << 30
	files, bytes := startHops(b, true), startHops(b, false)
	src := filepath.Join(b.TempDir(), "src")
	sparse(b, src, size)
	one, both := newOneHop(b), map[string]*hops{"files": files, "bytes": bytes}
	sparse(b, filepath.Join(one.dir, "f"), size)
	lanes := map[string]sandbox.API{"one": connectTo(b, one.url)}
	for name, h := range both {
		sparse(b, filepath.Join(h.dir, "f"), size)
		lanes[name] = h.client(b)
	}
	order := []string{"one", "files", "bytes", "bytes", "files", "one"}
	for _, name := range order[:3] { // the pages of the files have to be there
		down(b, lanes[name], size)
	}
	took := map[string]time.Duration{}
	for b.Loop() {
		for _, name := range order {
			took[name+" down"] += down(b, lanes[name], size)
		}
		up(b, lanes["bytes"], src) // leaves memory behind that the next ones take
		for _, name := range order {
			took[name+" up"] += up(b, lanes[name], src)
		}
	}
	for _, way := range []string{"down", "up"} {
		for _, name := range []string{"files", "bytes"} {
			b.ReportMetric(took["one "+way].Seconds()/took[name+" "+way].Seconds(), name+"-"+way+"-ratio")
		}
		b.ReportMetric(float64(2*b.N)*size/(1<<20)/took["one "+way].Seconds(), "one-"+way+"-MiB/s")
	}
}

func newOneHop(b *testing.B) *hops {
	dir := b.TempDir()
	h := &hops{dir: filepath.Join(dir, "cwd")}
	path, err := buildOnce()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(path, "agent", "--listen", "tcp://127.0.0.1:0", "--cwd", h.dir, "--secret-sha256", fmt.Sprintf("%x", sha256.Sum256([]byte("secret"))))
	said, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	h.agent = startQuiet(b, cmd)
	line, _ := bufio.NewReader(said).ReadString('\n')
	_, h.url, _ = strings.Cut(strings.TrimSpace(line), "listens on ")
	return h
}

func down(b *testing.B, sb sandbox.API, size int64) time.Duration {
	began := time.Now()
	s, err := sb.ReadFileStream(b.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if n, err := s.WriteTo(io.Discard); n != size || err != nil {
		b.Fatal(n, err)
	}
	return time.Since(began)
}

func up(b *testing.B, sb sandbox.API, src string) time.Duration {
	f, err := os.Open(src)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	began := time.Now()
	if _, err := sb.WriteFileStream(b.Context(), "up", f, sandbox.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	if err := sb.Rm(b.Context(), "up", sandbox.RmOptions{}); err != nil {
		b.Fatal(err)
	}
	return took
}
