package sandboxtest

import (
	"bytes"
	"strings"
	"time"

	"github.com/controld/controld/sandbox"
)

// allBytes has every byte, so that no text conversion goes unnoticed.
func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func readChecks() []check {
	return []check{
		{"text", func(e *env) {
			e.write("f", "héllo\n")
			s, err := e.b.ReadFile(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			e.equal(s, "héllo\n")
		}},
		{"text that is none", func(e *env) {
			e.write("f", "\xff\xfe")
			_, err := e.b.ReadFile(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindInvalidUTF8)
		}},
		{"empty", func(e *env) {
			e.write("f", "")
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			e.equal(len(c.Data), 0)
			e.equal(c.Size, int64(0))
		}},
		{"binary", func(e *env) {
			e.write("f", string(allBytes()))
			e.equal(e.read("f"), string(allBytes()))
		}},
		{"NUL and < at 64 KiB", func(e *env) {
			for _, c := range []string{"\x00", "<", "\\", "\u2028"} {
				e.write("f", strings.Repeat(c, 65536))
				e.equal(e.read("f"), strings.Repeat(c, 65536))
			}
		}},
		{"sizes around the edges", func(e *env) {
			for _, n := range []int{1, 4095, 4096, 4097, 65535, 65536, 65537, 1<<20 - 1, 1 << 20, 1<<20 + 1} {
				want := strings.Repeat("0123456789abcde\n", n/16+1)[:n]
				e.write("f", want)
				if e.read("f") != want {
					e.Fatalf("%d bytes differ", n)
				}
			}
		}},
		{"8 MiB", func(e *env) {
			want := bytes.Repeat(allBytes(), 8<<20/256)
			e.write("f", string(want))
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			if !bytes.Equal(c.Data, want) {
				e.Fatal("bytes differ")
			}
			e.equal(c.Size, int64(8<<20))
		}},
		{"size and etag", func(e *env) {
			w := e.write("f", "abc")
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			e.equal(c.Size, int64(3))
			e.equal(c.ETag, w.ETag)
		}},
		{"range", func(e *env) {
			e.write("f", "0123456789")
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{Offset: 3, Length: sandbox.Some(int64(4))})
			e.ok(err)
			e.equal(string(c.Data), "3456")
			e.equal(c.Size, int64(10))
		}},
		{"range of nothing", func(e *env) {
			e.write("f", "0123456789")
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{Length: sandbox.Some(int64(0))})
			e.ok(err)
			e.equal(len(c.Data), 0)
		}},
		{"range past the end", func(e *env) {
			e.write("f", "0123456789")
			for _, off := range []int64{10, 11, 1 << 40} {
				c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{Offset: off})
				e.ok(err)
				e.equal(len(c.Data), 0)
			}
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{Offset: 8, Length: sandbox.Some(int64(1 << 40))})
			e.ok(err)
			e.equal(string(c.Data), "89")
		}},
		{"missing", func(e *env) {
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.equal(e.kind(err, sandbox.KindNotFound).Errno, "ENOENT")
		}},
		{"directory", func(e *env) {
			_, err := e.b.ReadFileBuffer(e.ctx, e.dir, sandbox.ReadOptions{})
			e.kind(err, sandbox.KindIsDirectory)
		}},
		{"file in the way", func(e *env) {
			e.write("f", "x")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("f/g"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotDirectory)
		}},
		{"trailing slash on a file", func(e *env) {
			e.write("f", "x")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("f/"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotDirectory)
		}},
		{"link", func(e *env) {
			e.write("f", "x")
			e.sh("ln -s f l")
			e.equal(e.read("l"), "x")
		}},
		{"dangling link", func(e *env) {
			e.sh("ln -s none l")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("l"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotFound)
		}},
		{"links in a circle", func(e *env) {
			e.sh("ln -s b a; ln -s a b")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("a"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindLoop)
		}},
		{"FIFO", func(e *env) {
			e.sh("mkfifo p")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("p"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotRegular)
		}},
		{"device", func(e *env) {
			_, err := e.b.ReadFileBuffer(e.ctx, "/dev/zero", sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotRegular)
		}},
		{"files that lie about their size", func(e *env) {
			s, err := e.b.ReadFile(e.ctx, "/proc/self/status", sandbox.ReadOptions{})
			e.ok(err)
			if !strings.Contains(s, "Pid:") {
				e.Fatalf("content %q", s)
			}
		}},
		{"too large", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			e.sh("truncate -s 1G big")
			_, err = e.b.ReadFileBuffer(e.ctx, e.p("big"), sandbox.ReadOptions{})
			se := e.kind(err, sandbox.KindTooLarge)
			e.equal(se.Limit, sandbox.Some(info.Limits.MaxBufferedBytes))
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("big"), sandbox.ReadOptions{Offset: 1 << 29, Length: sandbox.Some(int64(5))})
			e.ok(err)
			e.equal(string(c.Data), "\x00\x00\x00\x00\x00")
		}},
	}
}

func writeChecks() []check {
	return []check{
		{"new file is 0644 whatever the umask", func(e *env) {
			e.write("f", "x")
			e.equal(e.stat("f").Mode, sandbox.Some(uint32(0o644)))
		}},
		{"bytes and atomic", func(e *env) {
			info := e.write("f", "abc")
			e.equal(info.Bytes, int64(3))
			e.equal(info.Atomic, true)
		}},
		{"mode of a new file", func(e *env) {
			for _, mode := range []uint32{0, 0o600, 0o777} {
				e.b.Rm(e.ctx, e.p("f"), sandbox.RmOptions{Force: true})
				_, err := e.b.WriteFile(e.ctx, e.p("f"), nil, sandbox.WriteOptions{Mode: sandbox.Some(mode)})
				e.ok(err)
				e.equal(e.stat("f").Mode, sandbox.Some(mode))
			}
		}},
		{"mode of a replaced file is kept", func(e *env) {
			e.write("f", "a")
			e.sh("chmod 750 f")
			e.write("f", "b")
			e.equal(e.stat("f").Mode, sandbox.Some(uint32(0o750)))
		}},
		{"mode above 0777 is refused", func(e *env) {
			_, err := e.b.WriteFile(e.ctx, e.p("f"), nil, sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o4755))})
			e.kind(err, sandbox.KindInvalidParams)
			e.equal(e.exists("f"), false)
		}},
		{"missing parents are made, 0755", func(e *env) {
			e.write("a/b/c/f", "x")
			e.equal(e.read("a/b/c/f"), "x")
			e.equal(e.stat("a/b").Mode, sandbox.Some(uint32(0o755)))
		}},
		{"a file in the way of parents", func(e *env) {
			e.write("a", "x")
			_, err := e.b.WriteFile(e.ctx, e.p("a/b"), nil, sandbox.WriteOptions{})
			e.kind(err, sandbox.KindNotDirectory)
		}},
		{"no temporary file is left", func(e *env) {
			for range 5 {
				e.write("f", "x")
			}
			e.only("f")
		}},
		{"a directory is refused", func(e *env) {
			e.sh("mkdir d")
			_, err := e.b.WriteFile(e.ctx, e.p("d"), nil, sandbox.WriteOptions{})
			e.kind(err, sandbox.KindIsDirectory)
		}},
		{"trailing slash", func(e *env) {
			e.write("f", "x")
			for path, want := range map[string]sandbox.Kind{"f/": sandbox.KindNotDirectory, "none/": sandbox.KindIsDirectory, "/": sandbox.KindIsDirectory} {
				_, err := e.b.WriteFile(e.ctx, e.p(path), nil, sandbox.WriteOptions{})
				e.kind(err, want)
			}
			e.only("f")
		}},
		{"a FIFO is refused without blocking", func(e *env) {
			e.sh("mkfifo p")
			_, err := e.b.WriteFile(e.ctx, e.p("p"), []byte("x"), sandbox.WriteOptions{})
			e.kind(err, sandbox.KindNotRegular)
		}},
		{"a link is written through", func(e *env) {
			e.write("f", "old")
			e.sh("ln -s f l")
			e.write("l", "new")
			e.equal(e.read("f"), "new")
			st, err := e.b.Stat(e.ctx, e.p("l"), sandbox.StatOptions{NoFollow: true})
			e.ok(err)
			e.equal(st.Type, sandbox.TypeSymlink)
		}},
		{"a dangling link makes its target", func(e *env) {
			e.sh("ln -s target l")
			e.write("l", "x")
			e.equal(e.read("target"), "x")
		}},
		{"a hard link is split", func(e *env) {
			e.write("a", "old")
			e.sh("ln a b")
			e.write("a", "new")
			e.equal(e.read("b"), "old")
		}},
		{"readers of the old file keep it", func(e *env) {
			e.write("f", "old content")
			src, err := e.b.OpenRead(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer src.Close()
			e.write("f", "new")
			s := sandbox.NewReadStream(src, sandbox.ReadOptions{})
			var buf bytes.Buffer
			_, err = s.WriteTo(&buf)
			e.ok(err)
			e.equal(buf.String(), "old content")
		}},
		{"every write has an etag of its own", func(e *env) {
			seen := map[string]bool{}
			for range 50 {
				tag := e.write("f", "same").ETag
				if tag == "" || seen[tag] {
					e.Fatalf("etag %q twice", tag)
				}
				seen[tag] = true
			}
		}},
		{"the etag is that of stat", func(e *env) {
			e.equal(e.write("f", "x").ETag, e.stat("f").ETag)
		}},
		{"if_match holds", func(e *env) {
			tag := e.write("f", "a").ETag
			_, err := e.b.WriteFile(e.ctx, e.p("f"), []byte("b"), sandbox.WriteOptions{IfMatch: tag})
			e.ok(err)
			e.equal(e.read("f"), "b")
		}},
		{"if_match does not hold", func(e *env) {
			tag := e.write("f", "a").ETag
			e.write("f", "b")
			_, err := e.b.WriteFile(e.ctx, e.p("f"), []byte("c"), sandbox.WriteOptions{IfMatch: tag})
			e.kind(err, sandbox.KindConflict)
			e.equal(e.read("f"), "b")
		}},
		{"if_match on a missing file", func(e *env) {
			_, err := e.b.WriteFile(e.ctx, e.p("f"), nil, sandbox.WriteOptions{IfMatch: "x"})
			e.kind(err, sandbox.KindConflict)
			e.only()
		}},
		{"if_match sees a write by a command", func(e *env) {
			tag := e.write("f", "a").ETag
			e.sh("echo more >> f")
			_, err := e.b.WriteFile(e.ctx, e.p("f"), nil, sandbox.WriteOptions{IfMatch: tag})
			e.kind(err, sandbox.KindConflict)
		}},
		{"sync", func(e *env) {
			_, err := e.b.WriteFile(e.ctx, e.p("d/f"), []byte("x"), sandbox.WriteOptions{Sync: true})
			e.ok(err)
			e.equal(e.read("d/f"), "x")
		}},
		{"an executable runs at once", func(e *env) {
			_, err := e.b.WriteFile(e.ctx, e.p("x"), []byte("#!/bin/sh\necho ran\n"), sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o755))})
			e.ok(err)
			e.equal(e.sh("./x"), "ran\n")
		}},
		{"a running binary is replaced", func(e *env) {
			e.sh("cp /bin/sleep s")
			done := make(chan struct{})
			go func() {
				defer close(done)
				e.b.Exec(e.ctx, "exec ./s 0.3", sandbox.ExecOptions{Cwd: e.dir})
			}()
			e.write("s", "new")
			e.equal(e.read("s"), "new")
			<-done
		}},
	}
}

func statChecks() []check {
	return []check{
		{"file", func(e *env) {
			e.write("f", "abc")
			st := e.stat("f")
			e.equal(st.Type, sandbox.TypeFile)
			e.equal(st.Size, sandbox.Some(int64(3)))
			e.equal(st.IsSymlink, sandbox.Some(false))
			if d := time.Since(st.ModTime.Value); !st.ModTime.Known || d < -time.Hour || d > time.Hour {
				e.Fatalf("mtime %+v", st.ModTime)
			}
		}},
		{"mtime is the file's own", func(e *env) {
			e.write("f", "abc")
			e.sh("touch -d '2001-02-03 04:05:06.789012345 UTC' f")
			want := time.Date(2001, 2, 3, 4, 5, 6, 789012345, time.UTC)
			if st := e.stat("f"); !st.ModTime.Value.Equal(want) {
				e.Fatalf("mtime %v", st.ModTime.Value)
			}
		}},
		{"mtime before 1970", func(e *env) {
			e.write("f", "abc")
			e.sh("touch -d '1960-01-01 00:00:00 UTC' f")
			if st := e.stat("f"); !st.ModTime.Value.Equal(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)) {
				e.Fatalf("mtime %v", st.ModTime.Value)
			}
		}},
		{"directory", func(e *env) { e.equal(e.stat("").Type, sandbox.TypeDirectory) }},
		{"link followed", func(e *env) {
			e.write("f", "abc")
			e.sh("ln -s f l")
			st := e.stat("l")
			e.equal(st.Type, sandbox.TypeFile)
			e.equal(st.IsSymlink, sandbox.Some(true))
			e.equal(st.Size, sandbox.Some(int64(3)))
		}},
		{"link itself", func(e *env) {
			e.sh("ln -s none l")
			st, err := e.b.Stat(e.ctx, e.p("l"), sandbox.StatOptions{NoFollow: true})
			e.ok(err)
			e.equal(st.Type, sandbox.TypeSymlink)
			e.equal(st.IsSymlink, sandbox.Some(true))
		}},
		{"dangling link followed", func(e *env) {
			e.sh("ln -s none l")
			_, err := e.b.Stat(e.ctx, e.p("l"), sandbox.StatOptions{})
			e.kind(err, sandbox.KindNotFound)
		}},
		{"other", func(e *env) {
			e.sh("mkfifo p")
			e.equal(e.stat("p").Type, sandbox.TypeOther)
		}},
		{"trailing slash", func(e *env) {
			e.write("f", "x")
			_, err := e.b.Stat(e.ctx, e.p("f/"), sandbox.StatOptions{})
			e.kind(err, sandbox.KindNotDirectory)
			_, err = e.b.Stat(e.ctx, e.dir+"/", sandbox.StatOptions{})
			e.ok(err)
		}},
		{"mode bits", func(e *env) {
			e.write("f", "x")
			e.sh("chmod 4751 f")
			e.equal(e.stat("f").Mode, sandbox.Some(uint32(0o751)))
		}},
		{"large size", func(e *env) {
			e.sh("truncate -s 5G f")
			e.equal(e.stat("f").Size, sandbox.Some(int64(5<<30)))
		}},
		{"exists", func(e *env) {
			e.write("f", "x")
			e.sh("ln -s none dangling; ln -s f l; mkdir d")
			for name, want := range map[string]bool{"f": true, "l": true, "d": true, "d/": true, "none": false, "dangling": false, "f/x": false, "f/": false, "none/x": false} {
				if got := e.exists(name); got != want {
					e.Errorf("exists %q = %v", name, got)
				}
			}
		}},
		{"exists of names that cannot be", func(e *env) {
			for _, path := range []string{"", "a\x00b", strings.Repeat("n", 256), strings.Repeat("d/", 5000)} {
				got, err := e.b.Exists(e.ctx, path, sandbox.ExistsOptions{})
				if got || err != nil {
					e.Errorf("exists %.20q = %v, %v", path, got, err)
				}
			}
		}},
	}
}
