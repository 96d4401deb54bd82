package check

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// TestVersion tells versions apart, and from what is none.
func TestVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	versions := map[string]string{"old": Digest([]byte("one")), "new": Digest([]byte("two"))}
	for content, want := range map[string]string{"one": "old", "two": "new", "on": "", "twoo": "", "": ""} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := Version(path, versions); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", content, got, err)
		}
	}
	if _, err := Version(path+"x", versions); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestLeftovers finds files that nobody knows, with and without a name.
func TestLeftovers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: /proc")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := Temps(os.Getpid(), dir, "f"); n != 0 || Only(dir, "f") != nil {
		t.Errorf("%d temps of known files", n)
	}
	if n := Temps(os.Getpid(), dir); n != 1 || Only(dir) == nil {
		t.Errorf("%d temps", n)
	}
	os.Remove(f.Name())
	if n := Temps(os.Getpid(), dir); n != 1 {
		t.Errorf("%d temps without a name", n)
	}
}

// TestRunning sees a process, its zombie and its end.
func TestRunning(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: /proc")
	}
	child := exec.Command("sleep", "300")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(child.Process.Pid)
	if Ended(child.Process.Pid) {
		t.Error("a child that sleeps has ended")
	}
	if !Running(pid) || Children(os.Getpid()) != 1 {
		t.Error("a child does not run")
	}
	child.Process.Kill()
	zombie := Eventually(t.Context(), func() error {
		if Running(pid) {
			return errors.New("it runs on")
		}
		return nil
	})
	if zombie != nil || Children(os.Getpid()) != 0 || Zombies(os.Getpid(), "sleep") != 1 {
		t.Errorf("%v", zombie)
	}
	if !Ended(child.Process.Pid) {
		t.Error("a zombie has not ended")
	}
	child.Wait()
	if Running(pid) || Zombies(os.Getpid(), "sleep") != 0 {
		t.Error("a process runs that is gone")
	}
}

// TestEventually says what was wrong last.
func TestEventually(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tries, wrong := 0, errors.New("wrong")
	err := Eventually(ctx, func() error {
		if tries++; tries == 3 {
			cancel()
		}
		return wrong
	})
	if !errors.Is(err, wrong) || tries < 3 {
		t.Errorf("%v after %d", err, tries)
	}
}
