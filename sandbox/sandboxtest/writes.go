package sandboxtest

import (
	"bytes"

	"github.com/controld/controld/sandbox"
)

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
