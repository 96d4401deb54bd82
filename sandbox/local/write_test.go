//go:build linux

package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
	"golang.org/x/sys/unix"
)

// temporaries runs a test with temps without a name and with recorded names.
func temporaries(t *testing.T, test func(t *testing.T, s *Sandbox)) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named=", named), func(t *testing.T) {
			s := open(t, Options{})
			s.named.Store(named)
			test(t, s)
			noTemps(t, s.opts.DefaultCwd)
		})
	}
}

func inode(t *testing.T, path string) syscall.Stat_t {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestWriteModes(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		defer syscall.Umask(syscall.Umask(0o077))
		dir := s.opts.DefaultCwd
		for _, c := range []struct {
			old, opt sandbox.Optional[uint32]
			want     uint32
		}{
			{want: 0o644}, {opt: sandbox.Some(uint32(0o700)), want: 0o700}, {opt: sandbox.Some(uint32(0)), want: 0},
			{old: sandbox.Some(uint32(0o751)), want: 0o751}, {old: sandbox.Some(uint32(0o751)), opt: sandbox.Some(uint32(0o666)), want: 0o666},
			{old: sandbox.Some(uint32(0o4755)), want: 0o755},
		} {
			os.Remove(dir + "/f")
			if c.old.Known {
				put(t, dir+"/f", "old")
				must(0, syscall.Chmod(dir+"/f", c.old.Value))
			}
			info, err := s.WriteFile(bg(), "f", []byte("new"), sandbox.WriteOptions{Mode: c.opt})
			if err != nil || !info.Atomic || info.Bytes != 3 {
				t.Errorf("%+v: %+v %v", c, info, err)
			}
			if st := inode(t, dir+"/f"); st.Mode&0o7777 != c.want {
				t.Errorf("%+v: mode %o", c, st.Mode)
			}
		}
		_, err := s.WriteFile(bg(), "f", nil, sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o1777))})
		want(t, err, sandbox.KindInvalidParams, "write_file", "f")
	})
}

func TestWriteErrors(t *testing.T) {
	s := open(t, Options{})
	tree(t, s)
	for path, kind := range map[string]sandbox.Kind{
		"": sandbox.KindInvalidParams, "a\x00": sandbox.KindInvalidParams, "dir": sandbox.KindIsDirectory, "dir/": sandbox.KindIsDirectory,
		"missing/": sandbox.KindIsDirectory, "file/": sandbox.KindNotDirectory, "file/x": sandbox.KindNotDirectory, ".": sandbox.KindIsDirectory,
		"/": sandbox.KindIsDirectory, "..": sandbox.KindIsDirectory, "dirlink": sandbox.KindIsDirectory, "fifo": sandbox.KindNotRegular, "socket": sandbox.KindNotRegular,
		"/dev/null": sandbox.KindNotRegular, "loop1": sandbox.KindLoop, strings.Repeat("n", 256): sandbox.KindNameTooLong,
		"/proc/self/fd/1": sandbox.KindPermission,
	} {
		_, err := s.WriteFile(bg(), path, nil, sandbox.WriteOptions{})
		want(t, err, kind, "write_file", path)
		_, err = s.OpenWrite(bg(), path, sandbox.WriteOptions{})
		want(t, err, kind, "write_file_stream", path)
	}
	_, err := s.OpenWrite(bg(), "no/such/file", sandbox.WriteOptions{})
	want(t, err, sandbox.KindNotFound, "write_file_stream", "no/such/file")
	ctx, cancel := context.WithCancel(bg())
	cancel()
	_, err = s.WriteFile(ctx, "new", nil, sandbox.WriteOptions{})
	want(t, err, sandbox.KindCancelled, "write_file", "new")
	_, err = s.OpenWrite(bg(), "new", sandbox.WriteOptions{Size: sandbox.Some(int64(-1))})
	want(t, err, sandbox.KindInvalidParams, "write_file_stream", "new")
	if !isRoot() {
		must(0, os.Mkdir(s.opts.DefaultCwd+"/closed", 0o555))
		_, err := s.WriteFile(bg(), "closed/x", nil, sandbox.WriteOptions{})
		want(t, err, sandbox.KindPermission, "write_file", "closed/x")
	}
	_, err = s.WriteFile(bg(), "/proc/sys/x", nil, sandbox.WriteOptions{})
	if k := sandbox.KindOf(err); k == "" || k == sandbox.KindInternal {
		t.Error(err)
	}
}

func TestWriteThroughLinks(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		dir := tree(t, s)
		must(0, os.Symlink("dir/deeper", dir+"/dang2"))
		must(0, os.Link(dir+"/file", dir+"/hard"))
		for _, path := range []string{"link", "dangling", "dang2"} {
			must(s.WriteFile(bg(), path, []byte("through "+path), sandbox.WriteOptions{}))
			if st := must(os.Lstat(dir + "/" + path)); st.Mode()&os.ModeSymlink == 0 {
				t.Errorf("%s is no link any more", path)
			}
		}
		for path, text := range map[string]string{"file": "through link", "nowhere": "through dangling", "dir/deeper": "through dang2", "hard": "content"} {
			if got := get(t, dir+"/"+path); got != text {
				t.Errorf("%s: %q", path, got)
			}
		}
	})
}

func TestWriteMakesParents(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	s := open(t, Options{})
	dir := s.opts.DefaultCwd
	must(s.WriteFile(bg(), "a/b/c", []byte("x"), sandbox.WriteOptions{}))
	if st := must(os.Stat(dir + "/a/b")); st.Mode().Perm() != 0o755 {
		t.Error(st.Mode())
	}
	sink := must(s.OpenWrite(bg(), "p/q/r", sandbox.WriteOptions{Parents: true}))
	must(sink.Commit(bg(), sandbox.Commit{}))
	_, err := s.WriteFile(bg(), "m/n", nil, sandbox.WriteOptions{IfMatch: "x"})
	want(t, err, sandbox.KindConflict, "write_file", "m/n")
	_, err = s.WriteFileStream(bg(), "m/n", strings.NewReader("x"), sandbox.WriteOptions{Parents: true})
	want(t, err, sandbox.KindNotFound, "write_file_stream", "m/n")
}

func TestETags(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		seen := make(map[string]bool)
		for range 500 { // the same size, faster than any clock tick
			info := must(s.WriteFile(bg(), "f", []byte("same"), sandbox.WriteOptions{}))
			if seen[info.ETag] {
				t.Fatalf("%s twice", info.ETag)
			}
			seen[info.ETag] = true
			st := must(s.Stat(bg(), "f", sandbox.StatOptions{}))
			content := must(s.ReadFileBuffer(bg(), "f", sandbox.ReadOptions{}))
			src := must(s.OpenRead(bg(), "f", sandbox.ReadOptions{IfMatch: info.ETag}))
			if st.ETag != info.ETag || content.ETag != info.ETag || src.ETag() != info.ETag {
				t.Fatalf("%s: stat %s, read %s, stream %s", info.ETag, st.ETag, content.ETag, src.ETag())
			}
			src.Close()
		}
	})
}

func TestIfMatchHasOneWinner(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		_, err := s.WriteFile(bg(), "f", nil, sandbox.WriteOptions{IfMatch: "x"})
		want(t, err, sandbox.KindConflict, "write_file", "f")
		for range 10 {
			etag := must(s.WriteFile(bg(), "f", []byte("old"), sandbox.WriteOptions{})).ETag
			var wg sync.WaitGroup
			var mu sync.Mutex
			won := 0
			for i := range 16 {
				wg.Go(func() {
					_, err := s.WriteFile(bg(), "f", []byte(fmt.Sprint(i)), sandbox.WriteOptions{IfMatch: etag})
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won++
					} else if sandbox.KindOf(err) != sandbox.KindConflict {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if won != 1 {
				t.Fatalf("%d winners", won)
			}
		}
	})
}

func TestWritesAreAtomic(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		whole := func(c byte) []byte { return bytes.Repeat([]byte{c}, 100_000) }
		must(s.WriteFile(bg(), "f", whole('a'), sandbox.WriteOptions{}))
		stop := make(chan struct{})
		var readers, writers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					b, err := os.ReadFile(s.opts.DefaultCwd + "/f")
					if err != nil || len(b) != 100_000 || !bytes.Equal(b, whole(b[0])) {
						t.Errorf("%d bytes, %v", len(b), err)
						return
					}
				}
			})
		}
		for i := range 4 {
			writers.Go(func() {
				for range 50 {
					if _, err := s.WriteFile(bg(), "f", whole('a'+byte(i)), sandbox.WriteOptions{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		close(stop)
		readers.Wait()
	})
}

func TestSinkVerdicts(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		dir := s.opts.DefaultCwd
		put(t, dir+"/f", "old")
		sum := sha256.Sum256([]byte("hello"))
		digest := hex.EncodeToString(sum[:])
		five := sandbox.Some(int64(5))
		for _, c := range []struct {
			name   string
			opts   sandbox.WriteOptions
			commit sandbox.Commit
			kind   sandbox.Kind
		}{
			{"whole", sandbox.WriteOptions{}, sandbox.Commit{Bytes: 5}, ""},
			{"sized", sandbox.WriteOptions{Size: five, Sync: true}, sandbox.Commit{Bytes: 5}, ""},
			{"digest", sandbox.WriteOptions{Digest: true}, sandbox.Commit{Bytes: 5, SHA256: digest}, ""},
			{"too few", sandbox.WriteOptions{}, sandbox.Commit{Bytes: 6}, sandbox.KindTruncated},
			{"too many", sandbox.WriteOptions{}, sandbox.Commit{Bytes: 4}, sandbox.KindTruncated},
			{"another size", sandbox.WriteOptions{Size: sandbox.Some(int64(9))}, sandbox.Commit{Bytes: 5}, sandbox.KindTruncated},
			{"corrupt", sandbox.WriteOptions{Digest: true}, sandbox.Commit{Bytes: 5, SHA256: strings.Repeat("0", 64)}, sandbox.KindCorrupt},
			{"unannounced", sandbox.WriteOptions{}, sandbox.Commit{Bytes: 5, SHA256: digest}, sandbox.KindInvalidParams},
			{"conflict", sandbox.WriteOptions{IfMatch: "other"}, sandbox.Commit{Bytes: 5}, sandbox.KindConflict},
		} {
			put(t, dir+"/f", "old")
			sink := must(s.OpenWrite(bg(), "f", c.opts))
			if _, bare := sink.Writer().(*os.File); bare == c.opts.Digest {
				t.Errorf("%s: writer is %T", c.name, sink.Writer())
			}
			must(io.WriteString(sink.Writer(), "hello"))
			if get(t, dir+"/f") != "old" {
				t.Errorf("%s: visible before the commit", c.name)
			}
			info, err := sink.Commit(bg(), c.commit)
			if c.kind == "" {
				if err != nil || info.Bytes != 5 || !info.Atomic || get(t, dir+"/f") != "hello" {
					t.Errorf("%s: %+v %v", c.name, info, err)
				}
			} else {
				want(t, err, c.kind, "write_file_stream", "f")
				if get(t, dir+"/f") != "old" {
					t.Errorf("%s: the old file is gone", c.name)
				}
				if again := sink.Abort(err); again != err {
					t.Errorf("%s: Abort says %v", c.name, again)
				}
			}
			if _, err := sink.Commit(bg(), c.commit); err == nil {
				t.Errorf("%s: a second commit", c.name)
			}
			if e := new(sandbox.Error); c.kind == sandbox.KindTruncated && (!asError(err, &e) || !e.Bytes.Known || !e.Expected.Known) {
				t.Errorf("%s: %+v", c.name, err)
			}
		}
	})
}

func asError(err error, e **sandbox.Error) bool {
	got, ok := err.(*sandbox.Error)
	*e = got
	return ok
}

func TestSinkAborts(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		dir := s.opts.DefaultCwd
		put(t, dir+"/f", "old")
		sink := must(s.OpenWrite(bg(), "f", sandbox.WriteOptions{}))
		cause := &sandbox.Error{Kind: sandbox.KindStalled}
		if got := sink.Abort(cause); got != error(cause) {
			t.Error(got)
		}
		if err := sink.Abort(nil); sandbox.KindOf(err) != sandbox.KindStalled {
			t.Error(err)
		}
		sink = must(s.OpenWrite(bg(), "f", sandbox.WriteOptions{}))
		if err := sink.Abort(nil); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(bg())
		sink = must(s.OpenWrite(ctx, "f", sandbox.WriteOptions{}))
		cancel()
		_, err := sink.Commit(bg(), sandbox.Commit{})
		for sandbox.KindOf(err) == "" { // the commit came first
			cancelled, cancel := context.WithCancel(bg())
			put(t, dir+"/f", "old")
			sink = must(s.OpenWrite(bg(), "f", sandbox.WriteOptions{}))
			cancel()
			_, err = sink.Commit(cancelled, sandbox.Commit{})
		}
		want(t, err, sandbox.KindCancelled, "write_file_stream", "f")
		if get(t, dir+"/f") != "old" {
			t.Error("replaced")
		}
		// The stream method cancelled while its reader blocks.
		ctx, cancel = context.WithCancel(bg())
		r, w := io.Pipe()
		defer w.Close()
		done := make(chan error)
		go func() {
			_, err := s.WriteFileStream(ctx, "f", r, sandbox.WriteOptions{})
			done <- err
		}()
		must(io.WriteString(w, "half"))
		cancel()
		if err := <-done; sandbox.KindOf(err) != sandbox.KindCancelled {
			t.Error(err)
		}
		if get(t, dir+"/f") != "old" {
			t.Error("replaced")
		}
	})
}

func TestStreams(t *testing.T) {
	s := open(t, Options{})
	content := bytes.Repeat([]byte("0123456789"), 500_000)
	for _, digest := range []bool{false, true} {
		info, err := s.WriteFileStream(bg(), "f", bytes.NewReader(content), sandbox.WriteOptions{Digest: digest, Size: sandbox.Some(int64(len(content)))})
		if err != nil || info.Bytes != int64(len(content)) {
			t.Fatal(info, err)
		}
		for _, c := range []sandbox.ReadOptions{{}, {Offset: 4_999_995}, {Offset: 3, Length: sandbox.Some(int64(10))}, {Offset: 1 << 40}, {Length: sandbox.Some(int64(0))}} {
			c.Digest, c.IfMatch = digest, info.ETag
			r := must(s.ReadFileStream(bg(), "f", c))
			got, err := io.ReadAll(r)
			offset, length := clip(int64(len(content)), c)
			if err != nil || !bytes.Equal(got, content[offset:offset+length]) {
				t.Errorf("%+v: %d bytes, %v", c, len(got), err)
			}
			r.Close()
			r.Close()
		}
	}
	r := must(s.ReadFileStream(bg(), "/proc/self/status", sandbox.ReadOptions{Offset: 2, Length: sandbox.Some(int64(3))}))
	if got, err := io.ReadAll(r); err != nil || string(got) != "me:" {
		t.Errorf("%q %v", got, err)
	}
	r.Close()
}

func TestSourceVerdicts(t *testing.T) {
	s := open(t, Options{})
	f := s.opts.DefaultCwd + "/f"
	for _, c := range []struct {
		name    string
		act     func()
		ifMatch bool
		changed bool
		kind    sandbox.Kind
	}{
		{"left alone", func() {}, true, false, ""},
		{"grew", func() { must(0, os.Truncate(f, 20)) }, false, true, ""},
		{"grew, if_match", func() { must(0, os.Truncate(f, 20)) }, true, false, sandbox.KindChanged},
		{"shrank", func() { must(0, os.Truncate(f, 3)) }, false, false, sandbox.KindChanged},
		{"written in place", func() { must(0, os.WriteFile(f, []byte("9876543210"), 0o644)) }, false, true, ""},
		{"written, time set back", func() {
			st := must(os.Stat(f))
			must(0, os.WriteFile(f, []byte("9876543210"), 0o644))
			must(0, os.Chtimes(f, time.Time{}, st.ModTime()))
		}, false, true, ""},
		{"replaced", func() { must(s.WriteFile(bg(), "f", []byte("x"), sandbox.WriteOptions{})) }, true, false, ""},
		{"removed", func() { must(0, os.Remove(f)) }, true, false, ""},
		{"mode changed", func() { must(0, os.Chmod(f, 0o600)) }, true, false, ""},
	} {
		os.Remove(f)
		etag := must(s.WriteFile(bg(), "f", []byte("0123456789"), sandbox.WriteOptions{})).ETag
		opts := sandbox.ReadOptions{}
		if c.ifMatch {
			opts.IfMatch = etag
		}
		src := must(s.OpenRead(bg(), "f", opts))
		if _, bare := src.Reader().(*os.File); !bare {
			t.Errorf("reader is %T", src.Reader())
		}
		must(io.CopyN(io.Discard, src.Reader(), 10))
		c.act()
		verdict, err := src.Finish(10)
		if c.kind != "" {
			want(t, err, c.kind, "read_file_stream", "f")
		} else if err != nil || verdict.Changed != c.changed {
			t.Errorf("%s: %+v %v", c.name, verdict, err)
		}
		src.Close()
	}
	put(t, f, "x")
	_, err := s.OpenRead(bg(), "f", sandbox.ReadOptions{IfMatch: "other"})
	want(t, err, sandbox.KindConflict, "read_file_stream", "f")
	ctx, cancel := context.WithCancel(bg())
	src := must(s.OpenRead(ctx, "f", sandbox.ReadOptions{}))
	cancel()
	eventually(t, "the source ends with its context", func() bool { _, err := src.Reader().Read(make([]byte, 1)); return err != nil && err != io.EOF })
	_, err = src.Finish(0)
	want(t, err, sandbox.KindCancelled, "read_file_stream", "f")
	src.Close()
}

// TestFullDisk needs the right to mount a small file system; without it a
// limit on the size of files stands in for a full one. That is a whole
// process's, which has a log of its own to write here: it is another's.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("FULL_DISK") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.count=1")
		cmd.Env = append(os.Environ(), "FULL_DISK=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	s := open(t, Options{})
	dir := s.opts.DefaultCwd
	must(0, os.Mkdir(dir+"/small", 0o755))
	kind := sandbox.KindNoSpace
	if unix.Mount("none", dir+"/small", "tmpfs", 0, "size=1m") == nil {
		t.Cleanup(func() { unix.Unmount(dir+"/small", unix.MNT_DETACH) })
	} else {
		var old syscall.Rlimit
		must(0, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old))
		must(0, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: old.Max}))
		t.Cleanup(func() { syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) })
		kind = sandbox.KindTooLarge
	}
	must(s.WriteFile(bg(), "small/f", []byte("old"), sandbox.WriteOptions{}))
	_, err := s.WriteFile(bg(), "small/f", make([]byte, 2<<20), sandbox.WriteOptions{})
	want(t, err, kind, "write_file", "small/f")
	if kind == sandbox.KindNoSpace { // a limit on sizes does not bind reserved space
		_, err = s.OpenWrite(bg(), "small/f", sandbox.WriteOptions{Size: sandbox.Some(int64(2 << 20))})
		want(t, err, kind, "write_file_stream", "small/f")
		refusedWithoutTaking(t, s, "small")
	}
	_, err = s.WriteFileStream(bg(), "small/f", bytes.NewReader(make([]byte, 2<<20)), sandbox.WriteOptions{})
	if sandbox.KindOf(err) != kind {
		t.Error(err)
	}
	if got := get(t, dir+"/small/f"); got != "old" {
		t.Errorf("%q", got)
	}
	noTemps(t, dir+"/small")
}

// refusedWithoutTaking shows that a size that cannot fit does not fill the disk
// while it is refused.
func refusedWithoutTaking(t *testing.T, s *Sandbox, name string) {
	t.Helper()
	free := func() (n uint64) {
		var fs unix.Statfs_t
		must(0, unix.Statfs(s.opts.DefaultCwd+"/"+name, &fs))
		return fs.Bavail
	}
	before, least := free(), make(chan uint64)
	done := make(chan struct{})
	go func() {
		n := before
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
				n = min(n, free())
			}
		}
		least <- n
	}()
	for range 200 {
		_, err := s.OpenWrite(bg(), name+"/g", sandbox.WriteOptions{Size: sandbox.Some(int64(1 << 20))})
		want(t, err, sandbox.KindNoSpace, "write_file_stream", name+"/g")
	}
	close(done)
	if n := <-least; n+16 < before {
		t.Errorf("%d of %d blocks were left while a size was refused", n, before)
	}
}

// TestWriteOverMountPoint needs the right to mount; without it only the way
// of writing in place is shown.
func TestWriteOverMountPoint(t *testing.T) {
	s := open(t, Options{})
	dir := s.opts.DefaultCwd
	put(t, dir+"/under", "under")
	put(t, dir+"/m", "m")
	if unix.Mount(dir+"/under", dir+"/m", "", unix.MS_BIND, "") != nil {
		k := must(s.openSink(bg(), opWrite, "m", sandbox.WriteOptions{}))
		k.content = []byte("in place")
		before := must(s.Stat(bg(), "m", sandbox.StatOptions{}))
		if info, err := k.writeInPlace(); err != nil || info.ETag == before.ETag || get(t, dir+"/m") != "in place" {
			t.Error(info, err)
		}
		k.Abort(nil)
		return
	}
	t.Cleanup(func() { unix.Unmount(dir+"/m", unix.MNT_DETACH) })
	info, err := s.WriteFile(bg(), "m", []byte("new content"), sandbox.WriteOptions{Sync: true})
	if err != nil || info.Atomic || info.Bytes != 11 || get(t, dir+"/under") != "new content" {
		t.Errorf("%+v %v", info, err)
	}
	if st := must(s.Stat(bg(), "m", sandbox.StatOptions{})); st.ETag != info.ETag {
		t.Error(st.ETag, info.ETag)
	}
	_, err = s.WriteFileStream(bg(), "m", strings.NewReader("x"), sandbox.WriteOptions{})
	want(t, err, sandbox.KindBusy, "write_file_stream", "m")
	noTemps(t, dir)
}

// TestOwnerIsKept needs root, who may give files away; anybody else sees that
// a file of another owner is not taken over silently.
func TestOwnerIsKept(t *testing.T) {
	s := open(t, Options{})
	f := s.opts.DefaultCwd + "/f"
	put(t, f, "old")
	if !isRoot() {
		must(s.WriteFile(bg(), "f", []byte("new"), sandbox.WriteOptions{}))
		if st := inode(t, f); int(st.Uid) != os.Getuid() {
			t.Error(st.Uid)
		}
		return
	}
	must(0, os.Chown(f, 1234, 4321))
	must(s.WriteFile(bg(), "f", []byte("new"), sandbox.WriteOptions{}))
	if st := inode(t, f); st.Uid != 1234 || st.Gid != 4321 {
		t.Error(st.Uid, st.Gid)
	}
}

// TestTextFileBusy writes a program and runs it at once, by many loops: a
// child that another loop is starting holds a copy of every descriptor.
func TestTextFileBusy(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		program := must(os.ReadFile(must(os.Readlink("/proc/self/exe"))))[:0]
		program = append(program, must(os.ReadFile("/bin/true"))...)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 25 {
					name := fmt.Sprintf("prog%d", i)
					if n%2 == 1 {
						if _, err := s.WriteFileStream(bg(), name, bytes.NewReader(program), sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o755))}); err != nil {
							t.Error(err)
						}
					} else if _, err := s.WriteFile(bg(), name, program, sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o755))}); err != nil {
						t.Error(err)
					}
					res, err := s.Exec(bg(), "exec ./"+name, sandbox.ExecOptions{})
					if err != nil || res.ExitCode != 0 {
						t.Errorf("%+v %v %s", res, err, res.Stderr)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestManySinksOneName(t *testing.T) {
	temporaries(t, func(t *testing.T, s *Sandbox) {
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				text := strings.Repeat(fmt.Sprintf("%02d", i), 5000)
				if _, err := s.WriteFileStream(bg(), "f", strings.NewReader(text), sandbox.WriteOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := get(t, s.opts.DefaultCwd+"/f")
		if len(got) != 10_000 || got != strings.Repeat(got[:2], 5000) {
			t.Errorf("%d bytes of a mix", len(got))
		}
		s.locks.mu.Lock()
		defer s.locks.mu.Unlock()
		if len(s.locks.locks) != 0 {
			t.Error("locks are left")
		}
	})
}

// TestNamedTempsAreNotListed: where a temp must have a name it is no file of the
// directory's yet; a name like it is.
func TestNamedTempsAreNotListed(t *testing.T) {
	s := open(t, Options{})
	s.named.Store(true)
	sink := must(s.OpenWrite(bg(), "f", sandbox.WriteOptions{}))
	put(t, filepath.Join(s.opts.DefaultCwd, tempPrefix+"other"), "")
	if there := must(os.ReadDir(s.opts.DefaultCwd)); len(there) != 2 {
		t.Fatalf("the directory holds %v", there)
	}
	if l := must(s.ReadDir(bg(), ".", sandbox.ReadDirOptions{})); len(l.Names) != 1 || l.Names[0] != tempPrefix+"other" {
		t.Errorf("listed: %q", l.Names)
	}
	must(sink.Writer().Write([]byte("x")))
	must(sink.Commit(bg(), sandbox.Commit{Bytes: 1}))
	if l := must(s.ReadDir(bg(), ".", sandbox.ReadDirOptions{})); len(l.Names) != 2 || l.Names[1] != "f" {
		t.Errorf("listed behind the commit: %q", l.Names)
	}
	left := 0
	s.temps.Range(func(any, any) bool { left++; return true })
	if left != 0 {
		t.Errorf("%d names are remembered", left)
	}
}
