package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// sleeper starts a process that ends with the test at the latest.
func sleeper(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if len(args) > 0 { // a shell that waits for what never comes, without a child
		cmd = exec.Command("sh", append([]string{"-c", "read line", "sh"}, args...)...)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func TestProcess(t *testing.T) {
	dir := t.TempDir()
	if _, err := Recorded(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("nothing recorded: %v", err)
	}
	cmd := sleeper(t)
	p, err := Hold(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Record(dir); err != nil {
		t.Fatal(err)
	}
	again, err := Recorded(dir)
	if err != nil || again.PID() != cmd.Process.Pid {
		t.Fatalf("%+v, %v", again, err)
	}
	defer again.Close()
	ended := make(chan error, 1)
	go func() { ended <- again.Wait() }()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	cmd.Wait()
	if err := p.Kill(); err != nil {
		t.Errorf("killed once more: %v", err)
	}
	if _, err := Recorded(dir); err != ErrEnded {
		t.Errorf("recorded and ended: %v", err)
	}
	if _, err := Hold(cmd.Process.Pid); err != ErrEnded {
		t.Errorf("held and ended: %v", err)
	}
}

// TestAnotherProcessOfThatNumber is not taken for the recorded one.
func TestAnotherProcessOfThatNumber(t *testing.T) {
	dir := t.TempDir()
	cmd := sleeper(t)
	born, err := bornAt(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordName), fmt.Appendf(nil, "%d %d\n", cmd.Process.Pid, born-1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Recorded(dir); err != ErrEnded {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordName), []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Recorded(dir); err == nil || err == ErrEnded {
		t.Errorf("garbage: %v", err)
	}
}

func TestEnd(t *testing.T) {
	word := uuid.NewString()
	mine, others := sleeper(t, word), sleeper(t, word+"x")
	ended := make(chan error, 1)
	go func() { ended <- mine.Wait() }()
	if err := End(word); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := others.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("a process with another word: %v", err)
	}
}

// TestSocket: through a path that is longer than an address may be.
func TestSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if info, err := os.Stat(filepath.Join(dir, SocketName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	conn, err := Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestKeepSocket: the agent is found when its own name of the socket has gone.
func TestKeepSocket(t *testing.T) {
	run := t.TempDir()
	if err := MakeLink(run, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	kept := make(chan error, 1)
	go func() { kept <- KeepSocket(t.Context(), run, nil) }()
	at, err := os.Open(LinkDir(run))
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	ln, err := net.ListenUnix("unix", address(at))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(LinkDir(run), SocketName)); err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestKeepSocketGivesUp(t *testing.T) {
	run := t.TempDir()
	if err := MakeLink(run, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	close(gone)
	if err := KeepSocket(t.Context(), run, gone); err != ErrEnded {
		t.Errorf("gone: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := KeepSocket(ctx, run, nil); err == nil {
		t.Error("nobody listens, and that is no error")
	}
}

func TestSeal(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("first"), 0o755); err != nil {
		t.Fatal(err)
	}
	sealed := filepath.Join(dir, "sealed")
	a, err := Seal(sealed, program, "agent")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("second"), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := Seal(sealed, program, "agent")
	if err != nil || b.Path == a.Path {
		t.Fatalf("%v, %v, %v", a, b, err)
	}
	if again, err := Seal(sealed, program, "agent"); err != nil || again.Path != b.Path {
		t.Errorf("%v, %v", again, err)
	}
	if text, err := os.ReadFile(a.Path); err != nil || string(text) != "first" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(a.Path); err != nil || info.Mode() != 0o555 {
		t.Errorf("%v, %v", info, err)
	}
	if all, err := os.ReadDir(sealed); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	if a.Static {
		t.Error("what is no program is said to be a static one")
	}
	sh, err := Seal(sealed, "/bin/sh")
	if err != nil || sh.Static {
		t.Errorf("%+v, %v", sh, err)
	}
	if box, err := exec.LookPath("busybox"); err == nil {
		if static, err := Seal(sealed, box); err != nil || !static.Static {
			t.Errorf("%+v, %v", static, err)
		}
	}
	line := a.Inside("/agent", "/w", "unix:///s", "secret")
	if want := "/agent agent --listen unix:///s --secret-sha256 " + Mark("secret") + " --cwd /w"; strings.Join(line, " ") != want {
		t.Errorf("%q", line)
	}
}

// TestOwn: what a directory holds is given away, and nothing that links lead to.
func TestOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	inside := filepath.Join(dir, "inside")
	for _, d := range []string{outside, inside, filepath.Join(inside, "d")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"l": outside, "d/l": "../../outside", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(inside, link)); err != nil {
			t.Fatal(err)
		}
	}
	const uid, gid = 1<<30 + 1000, 1<<30 + 1001
	if err := Own(inside, uid, gid); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"": uid, "d": uid, "l": uid, "d/l": uid, "dangling": uid, "../outside": 0} {
		info, err := os.Lstat(filepath.Join(inside, name))
		if err != nil || !isOf(info, want) {
			t.Errorf("%q is not of %d: %v", name, want, err)
		}
	}
	if err := os.Chown(filepath.Join(inside, "d"), 5, 5); err != nil {
		t.Fatal(err)
	}
	if err := Own(inside, uid, gid); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(inside, "d")); err != nil || !isOf(info, 5) {
		t.Errorf("what is his already was gone through: %v", err)
	}
}

// TestStage: what is mounted for a child is seen by it, by users who may not go
// there by its own path, and by nobody else.
func TestStage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	dir := t.TempDir() // mode 0700 above it
	for _, name := range []string{"shown", "hidden"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "f"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var at string
	var out []byte
	err := Private(func() error {
		var err error
		if at, err = Stage(map[string]string{"s": filepath.Join(dir, "shown"), "file": filepath.Join(dir, "hidden", "f"), "ro": filepath.Join(dir, "shown")}); err != nil {
			return err
		}
		if err := Show(filepath.Join(at, "s"), filepath.Join(at, "ro"), false); err != nil {
			return err
		}
		cmd := exec.Command("sh", "-c", "cat s/f file; ls; ls "+dir+" 2>&1; echo x >ro/f && echo written; :")
		cmd.Dir = at
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1<<30 + 1000, Gid: 1<<30 + 1000}}
		out, err = cmd.Output()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out); !strings.HasPrefix(got, "shownhiddenfile\nro\ns\n") || strings.Contains(got, "written") || !strings.Contains(got, "Permission denied") {
		t.Errorf("%s", got)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), " "+at+"/s ") {
		t.Errorf("it is mounted in this process: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(at, "s")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stage is seen outside: %v", err)
	}
}

func TestLastWords(t *testing.T) {
	dir := t.TempDir()
	if got := LastWords(dir); got != "" {
		t.Errorf("%q", got)
	}
	log, err := Log(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintf(log, "%s the end", strings.Repeat("x", 2*lastWords))
	if got := LastWords(dir); len(got) != lastWords || !strings.HasSuffix(got, "x the end") {
		t.Errorf("%d bytes, %q", len(got), got)
	}
}
