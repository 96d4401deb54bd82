package sandboxtest

import (
	"strings"
	"time"

	"github.com/controld/controld/sandbox"
)

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
