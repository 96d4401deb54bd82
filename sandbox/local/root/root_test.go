//go:build linux

package root

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// walkers runs a test with the kernel's openat2 and with our own walker.
func walkers(t *testing.T, test func(t *testing.T, r *Root, cwd string)) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprint("walker=", own), func(t *testing.T) {
			cwd := t.TempDir()
			r := New(cwd)
			if own {
				r.UseWalker()
			}
			before := fds(t)
			test(t, r, cwd)
			if after := fds(t); after != before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
			if !own && r.walker.Load() {
				t.Log("this kernel has no openat2: both runs used the walker")
			}
		})
	}
}

func fds(t *testing.T) int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func build(t *testing.T, dir string, links map[string]string, files ...string) {
	t.Helper()
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "/") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range links {
		if err := os.Symlink(text, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// opened opens by a Place and returns what was reached.
func opened(r *Root, scope, path string, open func(*Place) (int, error)) (string, error) {
	place, err := r.Locate(scope, path)
	if err != nil {
		return "", err
	}
	defer place.Close()
	fd, err := open(place)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return os.Readlink(procPath(fd))
}

func TestOpenInScope(t *testing.T) {
	walkers(t, func(t *testing.T, r *Root, cwd string) {
		scope := cwd + "/s"
		build(t, cwd, nil, "outside", "s/a/b/f", "s/f", "s/d/", "sx/f")
		links := map[string]string{
			"s/in": "a/b/f", "s/dir": "a/b", "s/a/b/up": "../../f", "s/out": "../outside", "s/abs": scope + "/f", "s/root": "/",
			"s/loop": "loop", "s/l1": "l2", "s/l2": "l1", "s/gone": "nowhere", "s/slash": "a/b/", "s/fslash": "f/", "s/top": "a/../../s/f",
			"s/proc": "/proc/self/root", "s/chain00": "f", "s/dot": ".", "s/dotdot": "a/..",
		}
		for i := 1; i <= 45; i++ {
			links[fmt.Sprintf("s/chain%02d", i)] = fmt.Sprintf("chain%02d", i-1)
		}
		build(t, cwd, links)
		for _, c := range []struct {
			path, want string
			err        error
		}{
			{"f", "/f", nil}, {"./f", "/f", nil}, {"a//b///f", "/a/b/f", nil}, {"a/./b/f", "/a/b/f", nil}, {"a/../f", "/f", nil},
			{"in", "/a/b/f", nil}, {"dir/f", "/a/b/f", nil}, {"dir/..", "/a", nil}, {"dir/../../f", "/f", nil}, {"a/b/up", "/f", nil}, {"slash/f", "/a/b/f", nil},
			{".", "", nil}, {"a", "/a", nil}, {"a/", "/a", nil}, {"a/.", "/a", nil}, {"dir/", "/a/b", nil}, {"dot/dot/f", "/f", nil}, {"dotdot/f", "/f", nil},
			{scope, "", nil}, {scope + "/", "", nil}, {scope + "/f", "/f", nil}, {"/." + scope + "/./f", "/f", nil}, {scope + "//f", "/f", nil},
			{"..", "", ErrOutside}, {"../s/f", "", ErrOutside}, {"a/../../outside", "", ErrOutside}, {"out", "", ErrOutside}, {"abs", "", ErrOutside},
			{"root", "", ErrOutside}, {"root/etc", "", ErrOutside}, {"proc/etc", "", ErrOutside}, {"top", "", ErrOutside}, {scope + "/../outside", "", ErrOutside},
			{scope + "x/f", "", ErrOutside}, {cwd, "", ErrOutside}, {"/", "", ErrOutside}, {cwd + "/outside", "", ErrOutside},
			{"loop", "", syscall.ELOOP}, {"l1/x", "", syscall.ELOOP}, {"chain40", "", syscall.ELOOP}, {"chain45", "", syscall.ELOOP}, {"chain39", "/f", nil},
			{"gone", "", syscall.ENOENT}, {"nothing/..", "", syscall.ENOENT}, {"f/", "", syscall.ENOTDIR}, {"f/.", "", syscall.ENOTDIR}, {"f/x", "", syscall.ENOTDIR},
			{"f/..", "", syscall.ENOTDIR}, {"in/", "", syscall.ENOTDIR}, {"fslash", "", syscall.ENOTDIR}, {"", "", ErrInvalid}, {"a\x00", "", ErrInvalid},
			{strings.Repeat("n", 256), "", syscall.ENAMETOOLONG}, {strings.Repeat("n/", 2048), "", syscall.ENAMETOOLONG},
		} {
			got, err := opened(r, scope, c.path, (*Place).Open)
			if !errors.Is(err, c.err) || c.err == nil && (err != nil || got != scope+c.want) {
				t.Errorf("%.60q: %q, %v", c.path, got, err)
			}
		}
		for path, want := range map[string]string{"in": "/in", "gone": "/gone", "loop": "/loop", "slash/": "/a/b", "dir/f": "/a/b/f", "out": "/out"} {
			if got, err := opened(r, scope, path, (*Place).OpenLink); err != nil || got != scope+want {
				t.Errorf("%q itself: %q, %v", path, got, err)
			}
		}
		if _, err := opened(r, scope, "f", (*Place).OpenDir); err != syscall.ENOTDIR {
			t.Error(err)
		}
		if _, err := r.Locate(cwd+"/missing", "f"); err != syscall.ENOENT {
			t.Error(err)
		}
		if _, err := r.Locate(cwd+"/outside", "f"); err != syscall.ENOTDIR {
			t.Error(err)
		}
		if got, err := opened(r, "s", "f", (*Place).Open); err != nil || got != scope+"/f" {
			t.Error("a relative scope:", got, err)
		}
	})
}

func TestTarget(t *testing.T) {
	walkers(t, func(t *testing.T, r *Root, cwd string) {
		build(t, cwd, map[string]string{
			"s/in": "a/f", "s/a/up": "../new", "s/out": "../out", "s/abs": "/tmp/x", "s/loop": "loop", "s/toin": "in", "s/todir": "a/", "s/deep": "a/b/c",
		}, "s/a/f", "s/f")
		for _, c := range []struct {
			path, dir, name string
			err             error
		}{
			{"f", "/s", "f", nil}, {"new", "/s", "new", nil}, {"in", "/s/a", "f", nil}, {"toin", "/s/a", "f", nil}, {"a/up", "/s", "new", nil},
			{"out", "", "", ErrOutside}, {"abs", "", "", ErrOutside}, {"../x", "", "", ErrOutside}, {"loop", "", "", syscall.ELOOP}, {"todir", "", "", syscall.EISDIR},
			{"deep", "", "", syscall.ENOENT}, {"f/", "", "", syscall.ENOTDIR}, {"n/", "", "", syscall.EISDIR}, {".", "", "", syscall.EISDIR}, {"f/x", "", "", syscall.ENOTDIR},
		} {
			place, err := r.Locate(cwd+"/s", c.path)
			if err != nil {
				t.Fatal(err)
			}
			dir, name, err := place.Target()
			place.Close()
			if !errors.Is(err, c.err) {
				t.Errorf("%q: %v", c.path, err)
			}
			if err != nil {
				continue
			}
			if got, _ := os.Readlink(procPath(dir)); got != cwd+c.dir || name != c.name {
				t.Errorf("%q: %q %q", c.path, got, name)
			}
			unix.Close(dir)
		}
	})
}

// TestPlain goes through the machine's own tree, but no magic link.
func TestPlain(t *testing.T) {
	walkers(t, func(t *testing.T, r *Root, cwd string) {
		build(t, cwd, map[string]string{"abs": cwd + "/d", "magic": "/proc/self/cwd", "fd": "/proc/self/fd/0"}, "d/f")
		base := filepath.Base(cwd)
		for path, want := range map[string]any{
			"d": cwd + "/d", "abs": cwd + "/d", cwd + "/d": cwd + "/d", "../" + base + "/d": cwd + "/d", "/../../..": "/", "/": "/", ".": cwd,
			"/proc/self/cwd": ErrMagicLink, "magic": ErrMagicLink, "fd": ErrMagicLink, "/proc/self/root": ErrMagicLink, "/proc/self/fd/0": ErrMagicLink,
			"/proc/self/exe": ErrMagicLink, "/proc/self/ns/net": ErrMagicLink, "/dev/fd/0": ErrMagicLink,
			"/proc/self/task": "/task", "/proc/thread-self/attr": "/attr", "missing": syscall.ENOENT, "d/f/x": syscall.ENOTDIR,
		} {
			place, err := r.LocatePlain(path)
			if err != nil {
				t.Fatal(err)
			}
			fd, err := place.Open()
			place.Close()
			if wantErr, ok := want.(error); ok {
				if !errors.Is(err, wantErr) {
					t.Errorf("%q: %v, want %v", path, err, wantErr)
				}
				continue
			}
			if err != nil {
				t.Errorf("%q: %v", path, err)
				continue
			}
			if got, _ := os.Readlink(procPath(fd)); !strings.HasSuffix(got, want.(string)) {
				t.Errorf("%q: %q", path, got)
			}
			unix.Close(fd)
		}
	})
}

// TestRace opens, makes and targets names while a directory and a link that
// leads out of the scope change places. The naive way, which resolves, checks
// and opens by text, is the control: it has to escape.
func TestRace(t *testing.T) {
	walkers(t, func(t *testing.T, r *Root, cwd string) {
		scope := cwd + "/s"
		build(t, cwd, map[string]string{"s/b": "../out"}, "out/f", "s/a/f", "s/keep")
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					unix.Renameat2(unix.AT_FDCWD, scope+"/a", unix.AT_FDCWD, scope+"/b", unix.RENAME_EXCHANGE)
				}
			}
		}()
		naive := 0
		inside := func(path string) bool { return strings.HasPrefix(path, scope+"/") }
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			for range 200 {
				if got, err := opened(r, scope, "a/f", (*Place).Open); err == nil && !inside(got) {
					t.Fatalf("escaped to %s", got)
				}
				if got, err := opened(r, scope, "a/x/../f", (*Place).Open); err == nil && !inside(got) {
					t.Fatalf("escaped to %s", got)
				}
				place, err := r.Locate(scope, "a/new")
				if err != nil {
					t.Fatal(err)
				}
				if dir, _, err := place.Target(); err == nil {
					got, _ := os.Readlink(procPath(dir))
					if unix.Close(dir); !inside(got) {
						t.Fatalf("escaped to %s", got)
					}
				}
				place.Close()
				naive += naiveEscape(scope)
			}
		}
		close(stop)
		<-stopped
		if naive == 0 {
			t.Log("the race never hit the naive way this time")
		}
		if entries, _ := os.ReadDir(cwd + "/out"); len(entries) != 1 {
			t.Errorf("made outside: %v", entries)
		}
	})
}

// naiveEscape is 1 when the naive way was led out of the scope.
func naiveEscape(scope string) int {
	real, err := filepath.EvalSymlinks(scope + "/a/f")
	if err != nil || !strings.HasPrefix(real, scope+"/") {
		return 0
	}
	b, err := os.ReadFile(scope + "/a/f")
	if err == nil && string(b) == "out/f" {
		return 1
	}
	return 0
}

func TestDisturbedWalkEnds(t *testing.T) {
	cwd := t.TempDir()
	r := New(cwd)
	r.UseWalker()
	build(t, cwd, nil, "s/a/b/c/f")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				os.Rename(cwd+"/s/a/b", cwd+"/s/b")
				os.Rename(cwd+"/s/b", cwd+"/s/a/b")
			}
		}
	}()
	for range 2000 {
		got, err := opened(r, cwd+"/s", "a/b/c/../../b/c/f", (*Place).Open)
		if err != nil && err != syscall.ENOENT && err != errDisturbed {
			t.Errorf("%q %v", got, err)
		}
	}
	close(stop)
	<-stopped
}

func TestMkdirAll(t *testing.T) {
	walkers(t, func(t *testing.T, r *Root, cwd string) {
		defer syscall.Umask(syscall.Umask(0o777))
		syscall.Umask(0)
		build(t, cwd, map[string]string{"s/out": "..", "s/dir": "a", "s/gone": "nothing"}, "s/a/f")
		syscall.Umask(0o077)
		for path, want := range map[string]error{
			"x/y/z": nil, "a": nil, "a/n": nil, "dir/m/o": nil, "p/../q/r": nil, "t/./u//v/": nil, cwd + "/s/k": nil,
			"out/x": ErrOutside, "../x": ErrOutside, "a/f": syscall.EEXIST, "a/f/x": syscall.ENOTDIR, "gone": syscall.EEXIST,
		} {
			place, err := r.Locate(cwd+"/s", path)
			if err != nil {
				t.Fatal(err)
			}
			if err := place.MkdirAll(); !errors.Is(err, want) {
				t.Errorf("%q: %v", path, err)
			}
			place.Close()
		}
		for _, dir := range []string{"x/y/z", "a/n", "a/m/o", "p", "q/r", "t/u/v", "k"} {
			if st, err := os.Stat(cwd + "/s/" + dir); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("%s: %v %v", dir, st, err)
			}
		}
	})
}

func FuzzWalkerAgreesWithKernel(f *testing.F) {
	for _, seed := range []string{"f", "a/../f", "l/../f", "l/./b", "../x", "loop/x", "a//b/", "up/s/f", "f/..", "l/l/l"} {
		f.Add(seed)
	}
	cwd := f.TempDir()
	for _, dir := range []string{"s/a/b/c", "s/b"} {
		os.MkdirAll(cwd+"/"+dir, 0o755)
	}
	for name, text := range map[string]string{"l": "a/b", "up": "..", "loop": "loop", "a/l": "../b", "a/b/l": "../../l", "b/f": "../f"} {
		os.Symlink(text, cwd+"/s/"+name)
	}
	os.WriteFile(cwd+"/s/f", nil, 0o644)
	kernel, walker := New(cwd), New(cwd)
	walker.UseWalker()
	f.Fuzz(func(t *testing.T, path string) {
		for _, open := range []func(*Place) (int, error){(*Place).Open, (*Place).OpenDir, (*Place).OpenLink} {
			got1, err1 := opened(kernel, cwd+"/s", path, open)
			got2, err2 := opened(walker, cwd+"/s", path, open)
			if got1 != got2 || !errors.Is(err1, err2) {
				t.Errorf("%q: kernel %q %v, walker %q %v", path, got1, err1, got2, err2)
			}
		}
	})
}
