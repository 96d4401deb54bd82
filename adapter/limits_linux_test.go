package adapter_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// inNamespace is set in the process that may mount.
const inNamespace = "CONTROLD_TEST_FULL_DISK"

// TestFullDisk uploads to a tmpfs of 2 MiB: a writer that is blocked learns of
// no_space, over every transport. It runs itself again in a user and mount
// namespace of its own.
func TestFullDisk(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		testFullDisk(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("needs user namespaces: sysctl kernel.unprivileged_userns_clone=1")
	}
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

func testFullDisk(t *testing.T) {
	for name, opts := range map[string]struct {
		url string
		mux bool
	}{
		"TCP": {"tcp://127.0.0.1:0", false}, "Unix": {"unix://" + filepath.Join(t.TempDir(), "s"), false}, "yamux": {"tcp://127.0.0.1:0", true},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t, opts.url)
			if err := syscall.Mount("tmpfs", st.cwd, "tmpfs", 0, "size=2m"); err != nil {
				t.Fatal(err)
			}
			defer syscall.Unmount(st.cwd, syscall.MNT_DETACH)
			a := connect(t, adapter.Options{Control: st.addr.String(), Mux: opts.mux})
			if _, err := a.WriteFile(t.Context(), "f", []byte("old"), sandbox.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			_, err := a.WriteFileStream(t.Context(), "f", endless{}, sandbox.WriteOptions{})
			took := time.Since(start)
			if e := wantKind(t, err, sandbox.KindNoSpace); e.Errno != "ENOSPC" {
				t.Errorf("%+v", e)
			}
			t.Logf("no_space after %v", took)
			if took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			_, err = a.WriteFileStream(t.Context(), "f", endless{}, sandbox.WriteOptions{Size: sandbox.Some(int64(64 << 20))})
			wantKind(t, err, sandbox.KindNoSpace)
			_, err = a.WriteFile(t.Context(), "g", make([]byte, 4<<20), sandbox.WriteOptions{})
			wantKind(t, err, sandbox.KindNoSpace)
			l, err := a.ReadDir(t.Context(), ".", sandbox.ReadDirOptions{})
			if err != nil || strings.Join(l.Names, " ") != "f" {
				t.Errorf("left behind: %q, %v", l.Names, err)
			}
			c, err := a.ReadFileBuffer(t.Context(), "f", sandbox.ReadOptions{})
			if err != nil || string(c.Data) != "old" {
				t.Errorf("%q, %v", c.Data, err)
			}
		})
	}
}

// endless never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestStalledStreamsOfASessionHoldNothingUp: with 50 streams of a multiplexed
// session that nobody reads, a small call is answered.
func TestStalledStreamsOfASessionHoldNothingUp(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	a := connect(t, adapter.Options{Control: st.addr.String(), Mux: true})
	if res, err := a.Exec(t.Context(), "truncate -s 100M f", sandbox.ExecOptions{}); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	for range 50 {
		s, err := a.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := io.ReadFull(s, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	slowest := time.Duration(0)
	for range 200 {
		start := time.Now()
		if _, err := a.Stat(t.Context(), "f", sandbox.StatOptions{}); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(start))
	}
	t.Logf("slowest stat %v", slowest)
	if slowest > 5*time.Second {
		t.Errorf("a stat took %v", slowest)
	}
}

// TestCase_C20: a link that dies under a command is never an exit code.
func TestCase_C20(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	c := newCutter(t, strings.TrimPrefix(st.addr.String(), "tcp://"))
	a := connect(t, adapter.Options{Control: c.url(), RetryFor: 100 * time.Millisecond})
	for i := range 20 {
		c.limit.Store(int64(1400 + 10*i))
		res, err := a.Exec(t.Context(), "head -c 2000 /dev/zero | tr '\\0' x", sandbox.ExecOptions{})
		if err == nil {
			t.Fatalf("%d: %+v", i, res)
		}
		if e := wantKind(t, err, sandbox.KindConnectionLost); e.Outcome == "" {
			t.Errorf("%d: %v says nothing of its outcome", i, err)
		}
	}
}

// TestCase_C03: a download that was cut goes on where it ended.
func TestCase_C03(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	c := newCutter(t, strings.TrimPrefix(st.addr.String(), "tcp://"))
	a := connect(t, adapter.Options{Control: st.addr.String(), Data: []string{c.url()}})
	if res, err := a.Exec(t.Context(), "truncate -s 4500M f; head -c 3000000 /dev/urandom >> f", sandbox.ExecOptions{}); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	const start = 4500<<20 - 1000
	const size = 3000000 + 1000
	file, err := os.Open(filepath.Join(st.cwd, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want := make([]byte, size)
	if _, err := file.ReadAt(want, start); err != nil {
		t.Fatal(err)
	}
	var got []byte
	cuts := 0
	for int64(len(got)) < size {
		c.limit.Store(700_000)
		s, err := a.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{Offset: start + int64(len(got))})
		if err != nil {
			continue
		}
		part, err := io.ReadAll(s)
		s.Close()
		got = append(got, part...)
		if err != nil {
			cuts++
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Bytes != sandbox.Some(int64(len(part))) {
				t.Fatalf("%v after %d bytes", err, len(part))
			}
		}
	}
	if cuts < 3 || string(got) != string(want) {
		t.Fatalf("%d cuts, %d bytes", cuts, len(got))
	}
}

// TestCase_C22: a short command's output and code are there, over the
// multiplexer of a microVM.
func TestCase_C22(t *testing.T) {
	dir := t.TempDir()
	newStage(t, "unix://"+filepath.Join(dir, "guest"))
	a := connect(t, adapter.Options{Control: startMuxer(t, dir)})
	for range 300 {
		res, err := a.Exec(context.Background(), "printf A; exit 7", sandbox.ExecOptions{})
		if err != nil || string(res.Stdout) != "A" || res.ExitCode != 7 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}
