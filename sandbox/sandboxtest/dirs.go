package sandboxtest

import (
	"slices"
	"strings"

	"github.com/controld/controld/sandbox"
)

func dirChecks() []check {
	return []check{
		{"empty", func(e *env) { e.only() }},
		{"sorted by bytes", func(e *env) {
			for _, n := range []string{"b", "a", "B", "_", "ä", ".hidden", "10", "9"} {
				e.write(n, "")
			}
			got := e.names()
			if !slices.IsSorted(got) || len(got) != 8 {
				e.Fatalf("names %q", got)
			}
		}},
		{"pages", func(e *env) {
			e.sh("for i in 1 2 3 4 5 6 7; do : > f$i; done")
			var all []string
			after := ""
			for {
				l, err := e.b.ReadDir(e.ctx, e.dir, sandbox.ReadDirOptions{After: after, Limit: 3})
				e.ok(err)
				all = append(all, l.Names...)
				if !l.More {
					break
				}
				e.equal(len(l.Names), 3)
				after = l.Names[2]
			}
			e.equal(strings.Join(all, " "), "f1 f2 f3 f4 f5 f6 f7")
		}},
		{"a page that is exactly full", func(e *env) {
			e.sh(": > a; : > b")
			l, err := e.b.ReadDir(e.ctx, e.dir, sandbox.ReadDirOptions{Limit: 2})
			e.ok(err)
			e.equal(len(l.Names), 2)
			e.equal(l.More, false)
		}},
		{"after the last", func(e *env) {
			e.sh(": > a")
			l, err := e.b.ReadDir(e.ctx, e.dir, sandbox.ReadDirOptions{After: "a"})
			e.ok(err)
			e.equal(len(l.Names), 0)
		}},
		{"20,000 entries", func(e *env) {
			e.sh("seq 1 20000 | xargs touch")
			e.equal(len(e.names()), 20000)
		}},
		{"missing", func(e *env) {
			_, err := e.b.ReadDir(e.ctx, e.p("none"), sandbox.ReadDirOptions{})
			e.kind(err, sandbox.KindNotFound)
		}},
		{"file", func(e *env) {
			e.write("f", "")
			_, err := e.b.ReadDir(e.ctx, e.p("f"), sandbox.ReadDirOptions{})
			e.kind(err, sandbox.KindNotDirectory)
		}},
		{"through a link", func(e *env) {
			e.sh("mkdir d; : > d/x; ln -s d l")
			l, err := e.b.ReadDir(e.ctx, e.p("l"), sandbox.ReadDirOptions{})
			e.ok(err)
			e.equal(strings.Join(l.Names, " "), "x")
		}},
		{"mkdir is 0755 whatever the umask", func(e *env) {
			e.ok(e.b.Mkdir(e.ctx, e.p("d"), sandbox.MkdirOptions{}))
			e.equal(e.stat("d").Mode, sandbox.Some(uint32(0o755)))
		}},
		{"mkdir of what exists", func(e *env) {
			e.write("f", "")
			e.kind(e.b.Mkdir(e.ctx, e.dir, sandbox.MkdirOptions{}), sandbox.KindExists)
			e.kind(e.b.Mkdir(e.ctx, e.p("f"), sandbox.MkdirOptions{}), sandbox.KindExists)
		}},
		{"mkdir without a parent", func(e *env) {
			e.kind(e.b.Mkdir(e.ctx, e.p("a/b"), sandbox.MkdirOptions{}), sandbox.KindNotFound)
		}},
		{"mkdir recursive", func(e *env) {
			e.ok(e.b.Mkdir(e.ctx, e.p("a/b/c"), sandbox.MkdirOptions{Recursive: true}))
			e.ok(e.b.Mkdir(e.ctx, e.p("a/b/c/"), sandbox.MkdirOptions{Recursive: true}))
			e.equal(e.stat("a/b/c").Type, sandbox.TypeDirectory)
		}},
		{"mkdir recursive over a file", func(e *env) {
			e.write("f", "")
			e.kindIn(e.b.Mkdir(e.ctx, e.p("f"), sandbox.MkdirOptions{Recursive: true}), sandbox.KindExists, sandbox.KindNotDirectory)
			e.kind(e.b.Mkdir(e.ctx, e.p("f/d"), sandbox.MkdirOptions{Recursive: true}), sandbox.KindNotDirectory)
		}},
		{"mkdir with a trailing slash", func(e *env) {
			e.ok(e.b.Mkdir(e.ctx, e.p("d/"), sandbox.MkdirOptions{}))
			e.equal(e.stat("d").Type, sandbox.TypeDirectory)
		}},
	}
}

func rmChecks() []check {
	rm := func(e *env, name string, opts sandbox.RmOptions) error { return e.b.Rm(e.ctx, e.p(name), opts) }
	return []check{
		{"file", func(e *env) {
			e.write("f", "")
			e.ok(rm(e, "f", sandbox.RmOptions{}))
			e.only()
		}},
		{"missing", func(e *env) {
			e.kind(rm(e, "f", sandbox.RmOptions{}), sandbox.KindNotFound)
			e.ok(rm(e, "f", sandbox.RmOptions{Force: true}))
			e.ok(rm(e, "no/f", sandbox.RmOptions{Force: true}))
		}},
		{"directory without recursive", func(e *env) {
			e.sh("mkdir d")
			e.kind(rm(e, "d", sandbox.RmOptions{}), sandbox.KindIsDirectory)
			e.kind(rm(e, "d", sandbox.RmOptions{Force: true}), sandbox.KindIsDirectory)
			e.only("d")
		}},
		{"tree", func(e *env) {
			e.sh("mkdir -p d/a/b d/c; : > d/a/b/f; : > d/g; ln -s f d/l; mkfifo d/p")
			e.ok(rm(e, "d", sandbox.RmOptions{Recursive: true}))
			e.only()
		}},
		{"deep tree", func(e *env) {
			// Longer than a path can be: made of two that are not.
			e.sh("p=$(printf 'dddddddddddddddd/%.0s' $(seq 190)); mkdir -p top/$p other/$p && mv other top/$p")
			e.ok(rm(e, "top", sandbox.RmOptions{Recursive: true}))
			e.only()
		}},
		{"links are not followed", func(e *env) {
			e.sh("mkdir victim d; : > victim/f; ln -s ../victim d/l; ln -s victim l")
			e.ok(rm(e, "d", sandbox.RmOptions{Recursive: true}))
			e.ok(rm(e, "l", sandbox.RmOptions{Recursive: true}))
			e.equal(e.exists("victim/f"), true)
		}},
		{"special files", func(e *env) {
			e.sh("mkfifo p")
			e.ok(rm(e, "p", sandbox.RmOptions{}))
			e.only()
		}},
		{"the root and the cwd", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			for _, path := range []string{"/", ".", info.Cwd, info.Cwd + "/", "//", "/."} {
				err := e.b.Rm(e.ctx, path, sandbox.RmOptions{Recursive: true, Force: true})
				e.kind(err, sandbox.KindPermission)
			}
			e.equal(e.exists(""), true)
		}},
		{"trailing slash", func(e *env) {
			e.write("f", "")
			e.sh("mkdir d")
			e.kind(rm(e, "f/", sandbox.RmOptions{}), sandbox.KindNotDirectory)
			e.ok(rm(e, "d/", sandbox.RmOptions{Recursive: true}))
			e.only("f")
		}},
		{"below a file", func(e *env) {
			e.write("f", "")
			e.kind(rm(e, "f/x", sandbox.RmOptions{}), sandbox.KindNotDirectory)
		}},
		{"read-only tree of one's own", func(e *env) {
			e.sh("mkdir d; : > d/f; chmod 400 d/f")
			e.ok(rm(e, "d", sandbox.RmOptions{Recursive: true}))
		}},
	}
}
