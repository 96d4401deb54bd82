//go:build linux

package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
	"golang.org/x/sys/unix"
)

// tree makes one of everything in the sandbox's directory.
func tree(t *testing.T, s *Sandbox) string {
	t.Helper()
	dir := s.opts.DefaultCwd
	put(t, dir+"/file", "content")
	put(t, dir+"/dir/inner", "inner")
	put(t, dir+"/bad", "\xff\xfe")
	must(0, os.Symlink("file", dir+"/link"))
	must(0, os.Symlink("dir", dir+"/dirlink"))
	must(0, os.Symlink("nowhere", dir+"/dangling"))
	must(0, os.Symlink("loop2", dir+"/loop1"))
	must(0, os.Symlink("loop1", dir+"/loop2"))
	must(0, syscall.Mkfifo(dir+"/fifo", 0o644))
	must(0, unix.Mknod(dir+"/socket", unix.S_IFSOCK|0o644, 0))
	return dir
}

func TestReadErrors(t *testing.T) {
	s := open(t, Options{})
	tree(t, s)
	for path, kind := range map[string]sandbox.Kind{
		"":                               sandbox.KindInvalidParams,
		"a\x00b":                         sandbox.KindInvalidParams,
		"missing":                        sandbox.KindNotFound,
		"dangling":                       sandbox.KindNotFound,
		"missing/x":                      sandbox.KindNotFound,
		"file/x":                         sandbox.KindNotDirectory,
		"file/":                          sandbox.KindNotDirectory,
		"dir":                            sandbox.KindIsDirectory,
		"dir/":                           sandbox.KindIsDirectory,
		".":                              sandbox.KindIsDirectory,
		"/":                              sandbox.KindIsDirectory,
		"loop1":                          sandbox.KindLoop,
		"fifo":                           sandbox.KindNotRegular,
		"socket":                         sandbox.KindNotRegular,
		"/dev/null":                      sandbox.KindNotRegular,
		"/dev/zero":                      sandbox.KindNotRegular,
		strings.Repeat("n", 256):         sandbox.KindNameTooLong,
		strings.Repeat("d/", 2048) + "x": sandbox.KindNameTooLong,
	} {
		_, err := s.ReadFile(bg(), path, sandbox.ReadOptions{})
		want(t, err, kind, "read_file", path)
		_, err = s.ReadFileBuffer(bg(), path, sandbox.ReadOptions{})
		want(t, err, kind, "read_file_buffer", path)
		_, err = s.OpenRead(bg(), path, sandbox.ReadOptions{})
		want(t, err, kind, "read_file_stream", path)
	}
	_, err := s.ReadFile(bg(), "bad", sandbox.ReadOptions{})
	want(t, err, sandbox.KindInvalidUTF8, "read_file", "bad")
	_, err = s.ReadFile(bg(), "file", sandbox.ReadOptions{Offset: -1})
	want(t, err, sandbox.KindInvalidParams, "read_file", "file")
	ctx, cancel := context.WithCancel(bg())
	cancel()
	_, err = s.ReadFile(ctx, "file", sandbox.ReadOptions{})
	want(t, err, sandbox.KindCancelled, "read_file", "file")
}

func TestReadRanges(t *testing.T) {
	s := open(t, Options{})
	tree(t, s)
	for _, c := range []struct {
		offset int64
		length sandbox.Optional[int64]
		want   string
	}{
		{0, sandbox.Optional[int64]{}, "content"},
		{3, sandbox.Optional[int64]{}, "tent"},
		{3, sandbox.Some(int64(2)), "te"},
		{0, sandbox.Some(int64(0)), ""},
		{7, sandbox.Optional[int64]{}, ""},
		{99, sandbox.Optional[int64]{}, ""},
		{3, sandbox.Some(int64(1<<63 - 1)), "tent"},
		{1<<63 - 1, sandbox.Some(int64(1<<63 - 1)), ""},
	} {
		opts := sandbox.ReadOptions{Offset: c.offset, Length: c.length}
		got := must(s.ReadFileBuffer(bg(), "link", opts))
		if string(got.Data) != c.want || got.Size != 7 {
			t.Errorf("%+v: %q, size %d", c, got.Data, got.Size)
		}
	}
}

func TestReadLimit(t *testing.T) {
	s := open(t, Options{Limits: sandbox.Limits{MaxBufferedBytes: 10}})
	dir := s.opts.DefaultCwd
	put(t, dir+"/ten", "0123456789")
	put(t, dir+"/eleven", "0123456789a")
	must(s.ReadFile(bg(), "ten", sandbox.ReadOptions{}))
	for _, path := range []string{"eleven", "/proc/cpuinfo"} {
		_, err := s.ReadFile(bg(), path, sandbox.ReadOptions{})
		want(t, err, sandbox.KindTooLarge, "read_file", path)
		if e := err.(*sandbox.Error); e.Limit != sandbox.Some(int64(10)) {
			t.Error(e.Limit)
		}
	}
	if got := must(s.ReadFile(bg(), "eleven", sandbox.ReadOptions{Offset: 8, Length: sandbox.Some(int64(10))})); got != "89a" {
		t.Error(got)
	}
}

func TestReadFilesThatLieAboutTheirSize(t *testing.T) {
	s := open(t, Options{})
	for _, path := range []string{"/proc/self/status", "/proc/meminfo", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		wantText := get(t, path)
		got, err := s.ReadFileBuffer(bg(), path, sandbox.ReadOptions{})
		if err != nil || len(got.Data) == 0 || got.Size != int64(len(got.Data)) || len(got.Data) < len(wantText)/2 {
			t.Errorf("%s: %d bytes, size %d, %v", path, len(got.Data), got.Size, err)
		}
		src := must(s.OpenRead(bg(), path, sandbox.ReadOptions{}))
		_, sizeKnown := src.Size()
		_, lengthKnown := src.Length()
		if sizeKnown || lengthKnown {
			t.Errorf("%s claims a size", path)
		}
		src.Close()
	}
	st := must(s.Stat(bg(), "/proc/self/status", sandbox.StatOptions{}))
	if st.Size.Known || st.ETag != "" {
		t.Errorf("%+v", st)
	}
}

func TestStat(t *testing.T) {
	s := open(t, Options{})
	dir := tree(t, s)
	must(0, os.Chmod(dir+"/file", 0o4751))
	for _, c := range []struct {
		path     string
		noFollow bool
		typ      sandbox.FileType
		link     bool
	}{
		{"file", false, sandbox.TypeFile, false}, {"link", false, sandbox.TypeFile, true},
		{"link", true, sandbox.TypeSymlink, true}, {"dangling", true, sandbox.TypeSymlink, true},
		{"dir", false, sandbox.TypeDirectory, false}, {"dirlink", false, sandbox.TypeDirectory, true},
		{"dirlink/", true, sandbox.TypeDirectory, false}, {"fifo", false, sandbox.TypeOther, false},
		{"socket", false, sandbox.TypeOther, false}, {"/dev/null", false, sandbox.TypeOther, false},
	} {
		st, err := s.Stat(bg(), c.path, sandbox.StatOptions{NoFollow: c.noFollow})
		if err != nil || st.Type != c.typ || st.IsSymlink != sandbox.Some(c.link) || !st.Size.Known || !st.ModTime.Known {
			t.Errorf("%+v: %+v %v", c, st, err)
		}
		if (st.ETag != "") != (c.typ == sandbox.TypeFile) {
			t.Errorf("%s: etag %q", c.path, st.ETag)
		}
	}
	st := must(s.Stat(bg(), "file", sandbox.StatOptions{}))
	if st.Mode != sandbox.Some(uint32(0o751)) || st.Size.Value != 7 {
		t.Errorf("%+v", st)
	}
	for path, kind := range map[string]sandbox.Kind{
		"dangling": sandbox.KindNotFound, "loop1": sandbox.KindLoop, "file/": sandbox.KindNotDirectory, "": sandbox.KindInvalidParams,
	} {
		_, err := s.Stat(bg(), path, sandbox.StatOptions{})
		want(t, err, kind, "stat", path)
	}
	must(0, os.Chtimes(dir+"/file", time.Time{}, time.Unix(1<<38, 0)))
	if st := must(s.Stat(bg(), "file", sandbox.StatOptions{})); st.ModTime.Known && st.ModTime.Value.Year() > 9999 {
		t.Error(st.ModTime)
	}
}

func TestExists(t *testing.T) {
	s := open(t, Options{})
	dir := tree(t, s)
	for path, exists := range map[string]bool{
		"file": true, "dir": true, "dir/": true, "link": true, "fifo": true, "/": true,
		"missing": false, "dangling": false, "file/x": false, "file/": false, "": false, "a\x00": false,
		strings.Repeat("n", 300): false, strings.Repeat("d/", 3000): false,
	} {
		if got, err := s.Exists(bg(), path, sandbox.ExistsOptions{}); got != exists || err != nil {
			t.Errorf("%.20q: %v %v", path, got, err)
		}
	}
	_, err := s.Exists(bg(), "../x", sandbox.ExistsOptions{Scope: dir})
	want(t, err, sandbox.KindPermission, "exists", "../x")
	if !isRoot() { // for root every directory can be searched
		must(0, os.Mkdir(dir+"/closed", 0))
		_, err := s.Exists(bg(), "closed/x", sandbox.ExistsOptions{})
		want(t, err, sandbox.KindPermission, "exists", "closed/x")
	}
}

func TestMkdir(t *testing.T) {
	s := open(t, Options{})
	dir := tree(t, s)
	defer syscall.Umask(syscall.Umask(0o777))
	for _, c := range []struct {
		path      string
		recursive bool
		kind      sandbox.Kind
	}{
		{"new", false, ""}, {"new2/", false, ""}, {"dir", false, sandbox.KindExists}, {"dir", true, ""},
		{"x/y", false, sandbox.KindNotFound}, {"x/y/z", true, ""}, {"x//y/./w/../v/", true, ""}, {"file", true, sandbox.KindExists},
		{"file", false, sandbox.KindExists}, {"file/x", true, sandbox.KindNotDirectory}, {"file/x", false, sandbox.KindNotDirectory},
		{"dirlink", true, ""}, {"dirlink/deep/er", true, ""}, {"dangling", true, sandbox.KindExists}, {".", true, ""}, {"/", true, ""},
		{".", false, sandbox.KindExists}, {"", true, sandbox.KindInvalidParams},
	} {
		err := s.Mkdir(bg(), c.path, sandbox.MkdirOptions{Recursive: c.recursive})
		if c.kind == "" && err != nil {
			t.Errorf("%+v: %v", c, err)
		} else if c.kind != "" {
			want(t, err, c.kind, "mkdir", c.path)
		}
	}
	syscall.Umask(0o022)
	for _, d := range []string{"new", "new2", "x", "x/y", "x/y/z", "x/y/v", "dir/deep/er"} {
		if st, err := os.Stat(dir + "/" + d); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v %v", d, st, err)
		}
	}
}

func TestMkdirRace(t *testing.T) {
	s := open(t, Options{})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range 20 {
				if err := s.Mkdir(bg(), fmt.Sprintf("r%d/a/b/c", i), sandbox.MkdirOptions{Recursive: true}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestReadDir(t *testing.T) {
	s := open(t, Options{Limits: sandbox.Limits{MaxMessageBytes: 64 << 10}})
	dir := s.opts.DefaultCwd
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("n%03d", i))
	}
	all = append(all, "\xff\xfe", "a\nb", "-dash", "A", "é")
	for _, name := range all {
		put(t, dir+"/d/"+name, "")
	}
	slices.Sort(all)
	got := must(s.ReadDir(bg(), "d", sandbox.ReadDirOptions{}))
	if !slices.Equal(got.Names, all) || got.More {
		t.Errorf("%d names, more %v", len(got.Names), got.More)
	}
	var paged []string
	for after, more := "", true; more; {
		page := must(s.ReadDir(bg(), "d", sandbox.ReadDirOptions{After: after, Limit: 77}))
		paged, more = append(paged, page.Names...), page.More
		after = paged[len(paged)-1]
	}
	if !slices.Equal(paged, all) {
		t.Errorf("%d names in pages", len(paged))
	}
	for i := range 400 {
		put(t, dir+"/big/"+strings.Repeat("n", 200)+fmt.Sprint(i), "")
	}
	_, err := s.ReadDir(bg(), "big", sandbox.ReadDirOptions{})
	want(t, err, sandbox.KindTooLarge, "readdir", "big")
	if page := must(s.ReadDir(bg(), "big", sandbox.ReadDirOptions{Limit: 400})); len(page.Names) < 200 || !page.More {
		t.Errorf("%d names, more %v", len(page.Names), page.More)
	}
	for path, kind := range map[string]sandbox.Kind{"d/A": sandbox.KindNotDirectory, "x": sandbox.KindNotFound, "": sandbox.KindInvalidParams} {
		_, err := s.ReadDir(bg(), path, sandbox.ReadDirOptions{})
		want(t, err, kind, "readdir", path)
	}
}

func TestRm(t *testing.T) {
	s := open(t, Options{})
	dir := tree(t, s)
	outside := t.TempDir()
	put(t, outside+"/keep", "kept")
	must(0, os.Symlink(outside, dir+"/dir/out"))
	put(t, dir+"/dir/a/b/c", "")
	for _, c := range []struct {
		path string
		opts sandbox.RmOptions
		kind sandbox.Kind
	}{
		{"missing", sandbox.RmOptions{}, sandbox.KindNotFound}, {"missing", sandbox.RmOptions{Force: true}, ""},
		{"missing/x", sandbox.RmOptions{Force: true}, ""}, {"file/x", sandbox.RmOptions{Force: true}, ""},
		{"file/", sandbox.RmOptions{}, sandbox.KindNotDirectory}, {"dirlink/", sandbox.RmOptions{Recursive: true}, sandbox.KindNotDirectory},
		{"dir", sandbox.RmOptions{}, sandbox.KindIsDirectory}, {"dir", sandbox.RmOptions{Force: true}, sandbox.KindIsDirectory},
		{"/", sandbox.RmOptions{Recursive: true}, sandbox.KindPermission}, {".", sandbox.RmOptions{Recursive: true}, sandbox.KindPermission},
		{"..", sandbox.RmOptions{Recursive: true, Force: true}, sandbox.KindPermission},
		{dir, sandbox.RmOptions{Recursive: true}, sandbox.KindPermission}, {filepath.Dir(dir), sandbox.RmOptions{Recursive: true}, sandbox.KindPermission},
		{"../" + filepath.Base(dir), sandbox.RmOptions{Recursive: true}, sandbox.KindPermission},
		{"dir/..", sandbox.RmOptions{Recursive: true}, sandbox.KindPermission}, {"", sandbox.RmOptions{}, sandbox.KindInvalidParams},
		{"file", sandbox.RmOptions{}, ""}, {"link", sandbox.RmOptions{}, ""}, {"dirlink", sandbox.RmOptions{Recursive: true}, ""},
		{"dangling", sandbox.RmOptions{}, ""}, {"fifo", sandbox.RmOptions{}, ""}, {"socket", sandbox.RmOptions{}, ""},
		{"dir/", sandbox.RmOptions{Recursive: true}, ""},
	} {
		err := s.Rm(bg(), c.path, c.opts)
		if c.kind == "" && err != nil {
			t.Errorf("%+v: %v", c, err)
		} else if c.kind != "" {
			want(t, err, c.kind, "rm", c.path)
		}
	}
	if get(t, outside+"/keep") != "kept" {
		t.Error("followed a link")
	}
	if left := must(s.ReadDir(bg(), ".", sandbox.ReadDirOptions{})); len(left.Names) != 3 { // bad, loop1, loop2
		t.Error(left.Names)
	}
	_, err := s.Stat(bg(), "dir", sandbox.StatOptions{})
	want(t, err, sandbox.KindNotFound, "stat", "dir")
}

func TestRmDeepAndWide(t *testing.T) {
	depth := 100_000
	if testing.Short() {
		depth = 5000
	}
	s := open(t, Options{})
	dir := s.opts.DefaultCwd
	must(0, os.Mkdir(dir+"/deep", 0o755))
	fd := must(unix.Open(dir+"/deep", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	for range depth {
		must(0, unix.Mkdirat(fd, "d", 0o755))
		next := must(unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	for i := range 300 {
		put(t, fmt.Sprintf("%s/deep/w%d/f%d", dir, i%7, i), "")
	}
	if err := s.Rm(bg(), "deep", sandbox.RmOptions{Recursive: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir + "/deep"); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestRmStopsAtMounts needs the right to mount; without it a directory that
// nobody may empty stands in.
func TestRmStopsAtMounts(t *testing.T) {
	s := open(t, Options{})
	dir := s.opts.DefaultCwd
	put(t, dir+"/kept/file", "kept")
	must(0, os.MkdirAll(dir+"/tree/m", 0o755))
	kind := sandbox.KindBusy
	if err := unix.Mount(dir+"/kept", dir+"/tree/m", "", unix.MS_BIND, ""); err == nil {
		t.Cleanup(func() { unix.Unmount(dir+"/tree/m", unix.MNT_DETACH) })
	} else {
		kind = sandbox.KindPermission
		put(t, dir+"/tree/m/file", "kept")
		must(0, os.Chmod(dir+"/tree/m", 0o555))
		t.Cleanup(func() { os.Chmod(dir+"/tree/m", 0o755) })
	}
	want(t, s.Rm(bg(), "tree", sandbox.RmOptions{Recursive: true}), kind, "rm", "tree")
	want(t, s.Rm(bg(), "tree/m", sandbox.RmOptions{Recursive: true}), kind, "rm", "tree/m")
	if get(t, dir+"/kept/file") != "kept" {
		t.Error("went into a mount")
	}
}

func TestScope(t *testing.T) {
	for _, walker := range []bool{false, true} {
		t.Run(fmt.Sprint("walker=", walker), func(t *testing.T) {
			s := open(t, Options{})
			if walker {
				s.paths.UseWalker()
			}
			dir := tree(t, s)
			put(t, dir+"/secret", "secret")
			must(0, os.Symlink("../secret", dir+"/dir/up"))
			must(0, os.Symlink(dir+"/dir/inner", dir+"/dir/abs"))
			must(0, os.Symlink("inner", dir+"/dir/in"))
			must(0, os.Symlink("/proc/self/root", dir+"/dir/magic"))
			must(0, os.Symlink("newfile", dir+"/dir/dang"))
			must(0, os.Symlink("../escaped", dir+"/dir/dangup"))
			must(0, os.Symlink("selfloop", dir+"/dir/selfloop"))
			scope := dir + "/dir"
			for path, kind := range map[string]sandbox.Kind{
				"inner": "", scope + "/inner": "", scope + "//./inner": "", "in": "", "./in": "",
				"../secret": sandbox.KindPermission, "up": sandbox.KindPermission, "abs": sandbox.KindPermission,
				"/etc/passwd": sandbox.KindPermission, dir + "/secret": sandbox.KindPermission, scope + "x/inner": sandbox.KindPermission,
				scope + "/../secret": sandbox.KindPermission, "magic/etc/passwd": sandbox.KindPermission,
				"selfloop": sandbox.KindLoop, "missing": sandbox.KindNotFound, "": sandbox.KindInvalidParams, scope: sandbox.KindIsDirectory,
			} {
				got, err := s.ReadFile(bg(), path, sandbox.ReadOptions{Scope: scope})
				if kind == "" && (err != nil || got != "inner") {
					t.Errorf("%q: %q %v", path, got, err)
				} else if kind != "" {
					want(t, err, kind, "read_file", path)
				}
			}
			for path, kind := range map[string]sandbox.Kind{
				"new": "", "dang": "", "sub/sub/new": "", "dangup": sandbox.KindPermission, "../new": sandbox.KindPermission,
				"up": sandbox.KindPermission, "../x/new": sandbox.KindPermission, "abs": sandbox.KindPermission,
				"/tmp/x": sandbox.KindPermission, "magic/tmp/x": sandbox.KindPermission, "selfloop": sandbox.KindLoop, "q/": sandbox.KindIsDirectory,
			} {
				_, err := s.WriteFile(bg(), path, []byte("x"), sandbox.WriteOptions{Scope: scope})
				if kind == "" && err != nil {
					t.Errorf("%q: %v", path, err)
				} else if kind != "" {
					want(t, err, kind, "write_file", path)
				}
			}
			if get(t, scope+"/newfile") != "x" || get(t, dir+"/secret") != "secret" {
				t.Error("written elsewhere")
			}
			if _, err := os.Lstat(dir + "/escaped"); err == nil {
				t.Error("escaped")
			}
			want(t, s.Mkdir(bg(), "../m", sandbox.MkdirOptions{Scope: scope, Recursive: true}), sandbox.KindPermission, "mkdir", "../m")
			want(t, s.Rm(bg(), "../secret", sandbox.RmOptions{Scope: scope}), sandbox.KindPermission, "rm", "../secret")
			want(t, s.Rm(bg(), scope, sandbox.RmOptions{Scope: scope, Recursive: true}), sandbox.KindPermission, "rm", scope)
			if err := s.Rm(bg(), "up", sandbox.RmOptions{Scope: scope}); err != nil {
				t.Error("a link is removed, not what it points at:", err)
			}
			if got := must(s.ReadDir(bg(), ".", sandbox.ReadDirOptions{Scope: scope})); !slices.Contains(got.Names, "inner") {
				t.Error(got)
			}
			if got := must(s.ReadFile(bg(), "inner", sandbox.ReadOptions{Scope: "dir"})); got != "inner" {
				t.Error(got)
			}
		})
	}
}

func TestBytesAreBytes(t *testing.T) {
	s := open(t, Options{})
	all := make([]byte, 1<<16)
	for i := range all {
		all[i] = byte(i * 7)
	}
	must(s.WriteFile(bg(), "\xff\n name", all, sandbox.WriteOptions{}))
	if got := must(s.ReadFileBuffer(bg(), "\xff\n name", sandbox.ReadOptions{})); !bytes.Equal(got.Data, all) {
		t.Error("changed")
	}
}
