package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox/local"
)

func makeTree(t *testing.T) (path, outside string) {
	t.Helper()
	path, outside = filepath.Join(t.TempDir(), "tree"), filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(path, "a", "b"), 0o755),
		os.WriteFile(filepath.Join(path, "a", "f"), nil, 0o444),
		os.WriteFile(outside, []byte("stays"), 0o644),
		os.Symlink(outside, filepath.Join(path, "link")),
		os.Symlink(filepath.Dir(outside), filepath.Join(path, "a", "dir")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path, outside
}

func gone(t *testing.T, path, outside string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the tree is there: %v", err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "stays" {
		t.Errorf("what a link leads to: %q, %v", text, err)
	}
}

// TestRemoveTree: links are not followed, depth does not matter, and what
// nobody may write or read is no obstacle to its owner.
func TestRemoveTree(t *testing.T) {
	path, outside := makeTree(t)
	if err := os.MkdirAll(filepath.Join(path, strings.Repeat("deep/", 500), "end"), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]os.FileMode{"a": 0o555, "deep/deep": 0o300} {
		if err := os.Chmod(filepath.Join(path, dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := local.RemoveTree(t.Context(), path); err == syscall.EACCES && !changesClosed(t) {
		t.Skip("this kernel has no fchmodat2")
	} else if err != nil {
		t.Fatal(err)
	}
	gone(t, path, outside)
	if err := local.RemoveTree(t.Context(), path); err != nil {
		t.Errorf("what is not there: %v", err)
	}
}

// changesClosed tells whether the kernel changes modes without following links.
func changesClosed(t *testing.T) bool {
	return unix.Fchmodat(unix.AT_FDCWD, t.TempDir(), 0o700, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// TestRemoveTreeStopsAtMounts: what is mounted in the tree keeps what is in it.
func TestRemoveTreeStopsAtMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	path, outside := makeTree(t)
	at := filepath.Join(path, "a", "b")
	if err := unix.Mount(filepath.Dir(outside), at, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	err := local.RemoveTree(t.Context(), path)
	if unmount := unix.Unmount(at, 0); unmount != nil {
		t.Fatal(unmount)
	}
	if err != syscall.EBUSY {
		t.Errorf("got %v", err)
	}
	if err := local.RemoveTree(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	gone(t, path, outside)
}
