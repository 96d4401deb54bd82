package sandboxtest

import (
	"fmt"
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
			e.sh("i=0; while [ $i -lt 400 ]; do mkdir dddddddddddddddd; cd -P dddddddddddddddd; i=$((i+1)); done")
			e.ok(rm(e, "dddddddddddddddd", sandbox.RmOptions{Recursive: true}))
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

// oddNames are legal names that something always trips over.
func oddNames() []string {
	return []string{
		"a:b", "x[0]", "*", "-rf", " lead", "trail ", "a\nb", "'", "\"", "$HOME", ";id", "~", "%s", "%2e%2e",
		"\u202e", strings.Repeat("n", 255), "😀", "\u00e9", "e\u0301", "\\", "a\\nb", "\x7f", "\x01", "...", "..a",
		"\xff\xfe", "caf\xe9", "C:", "nul", "#", "&", "|", "`id`", "{}", "null", "\ufeff", "\u2028", "<b>",
	}
}

func nameChecks() []check {
	checks := []check{
		{"all listed, byte for byte", func(e *env) {
			want := oddNames()
			for _, n := range want {
				e.write(n, n)
			}
			slices.Sort(want)
			e.only(want...)
		}},
		{"a page may start after any of them", func(e *env) {
			all := oddNames()
			for _, n := range all {
				e.write(n, "")
			}
			slices.Sort(all)
			for i, n := range all {
				l, err := e.b.ReadDir(e.ctx, e.dir, sandbox.ReadDirOptions{After: n})
				e.ok(err)
				e.equal(len(l.Names), len(all)-i-1)
			}
		}},
		{"an error carries any of them", func(e *env) {
			for _, n := range oddNames() {
				_, err := e.b.Stat(e.ctx, e.p(n), sandbox.StatOptions{})
				e.equal(e.kind(err, sandbox.KindNotFound).Path, e.p(n))
			}
		}},
	}
	for _, n := range oddNames() {
		checks = append(checks, check{fmt.Sprintf("%.12q", n), func(e *env) {
			e.write(n, n)
			e.equal(e.read(n), n)
			e.equal(e.stat(n).Size, sandbox.Some(int64(len(n))))
			e.equal(e.exists(n), true)
			e.ok(e.b.Rm(e.ctx, e.p(n), sandbox.RmOptions{}))
			e.only()
			e.ok(e.b.Mkdir(e.ctx, e.p(n), sandbox.MkdirOptions{}))
			e.write(n+"/f", "x")
			e.ok(e.b.Rm(e.ctx, e.p(n), sandbox.RmOptions{Recursive: true}))
		}})
	}
	return checks
}

func scopeChecks() []check {
	return []check{
		{"relative paths start at the scope", func(e *env) {
			e.write("s/f", "x")
			c, err := e.b.ReadFileBuffer(e.ctx, "f", sandbox.ReadOptions{Scope: e.p("s")})
			e.ok(err)
			e.equal(string(c.Data), "x")
		}},
		{"an absolute path is stripped of it", func(e *env) {
			e.write("s/f", "x")
			abs := e.abs()
			c, err := e.b.ReadFileBuffer(e.ctx, abs+"/s/f", sandbox.ReadOptions{Scope: abs + "/s"})
			e.ok(err)
			e.equal(string(c.Data), "x")
		}},
		{"an absolute path beside it", func(e *env) {
			e.write("s/f", "x")
			e.write("s2/f", "x")
			abs := e.abs()
			for _, path := range []string{abs + "/s2/f", abs + "/f", "/etc/passwd", abs + "/s/../s2/f"} {
				_, err := e.b.ReadFileBuffer(e.ctx, path, sandbox.ReadOptions{Scope: abs + "/s"})
				e.kind(err, sandbox.KindPermission)
			}
		}},
		{"dot dot", func(e *env) {
			e.write("s/d/f", "x")
			e.write("out", "secret")
			for _, path := range []string{"../out", "d/../../out", "..", "d/../..", "../s/d/f"} {
				_, err := e.b.Stat(e.ctx, path, sandbox.StatOptions{Scope: e.p("s")})
				e.kind(err, sandbox.KindPermission)
			}
			_, err := e.b.Stat(e.ctx, "d/../d/f", sandbox.StatOptions{Scope: e.p("s")})
			e.ok(err)
		}},
		{"no oracle for what is outside", func(e *env) {
			e.write("s/f", "x")
			_, there := e.b.Stat(e.ctx, "../s/f", sandbox.StatOptions{Scope: e.p("s")})
			_, not := e.b.Stat(e.ctx, "../none/f", sandbox.StatOptions{Scope: e.p("s")})
			e.kind(there, sandbox.KindPermission)
			e.kind(not, sandbox.KindPermission)
		}},
		{"links out", func(e *env) {
			e.write("out/f", "secret")
			e.write("s/in", "x")
			abs := e.abs()
			e.sh("ln -s ../out s/rel; ln -s " + abs + "/out s/abs; ln -s " + abs + "/s/in s/absin; ln -s in s/ok; ln -s /proc/self/root s/magic")
			for _, path := range []string{"rel/f", "abs/f", "rel", "absin", "rel/", "./rel/f", "magic/etc/passwd"} {
				_, err := e.b.ReadFileBuffer(e.ctx, path, sandbox.ReadOptions{Scope: e.p("s")})
				e.kindIn(err, sandbox.KindPermission)
			}
			_, err := e.b.ReadFileBuffer(e.ctx, "ok", sandbox.ReadOptions{Scope: e.p("s")})
			e.ok(err)
		}},
		{"a circle of links is a loop", func(e *env) {
			e.sh("mkdir s; ln -s b s/a; ln -s a s/b")
			_, err := e.b.ReadFileBuffer(e.ctx, "a", sandbox.ReadOptions{Scope: e.p("s")})
			e.kind(err, sandbox.KindLoop)
		}},
		{"writes", func(e *env) {
			e.write("out", "old")
			e.sh("mkdir s; ln -s ../out s/l; ln -s ../fresh s/dangling; ln -s ../ s/up")
			for _, path := range []string{"../out", "l", "dangling", "up/out", "../new"} {
				_, err := e.b.WriteFile(e.ctx, path, []byte("bad"), sandbox.WriteOptions{Scope: e.p("s")})
				e.kind(err, sandbox.KindPermission)
				_, err = e.b.WriteFileStream(e.ctx, path, strings.NewReader("bad"), sandbox.WriteOptions{Scope: e.p("s")})
				e.kind(err, sandbox.KindPermission)
			}
			e.equal(e.read("out"), "old")
			e.only("out", "s")
			_, err := e.b.WriteFile(e.ctx, "a/b", []byte("good"), sandbox.WriteOptions{Scope: e.p("s")})
			e.ok(err)
			e.equal(e.read("s/a/b"), "good")
		}},
		{"every other call", func(e *env) {
			e.sh("mkdir -p s out/d; : > out/f; ln -s ../out s/l")
			scope := e.p("s")
			for _, path := range []string{"../out", "l/d", "../out/d"} {
				_, err := e.b.ReadDir(e.ctx, path, sandbox.ReadDirOptions{Scope: scope})
				e.kind(err, sandbox.KindPermission)
				_, err = e.b.Exists(e.ctx, path, sandbox.ExistsOptions{Scope: scope})
				e.kind(err, sandbox.KindPermission)
				e.kind(e.b.Mkdir(e.ctx, path+"/new", sandbox.MkdirOptions{Scope: scope}), sandbox.KindPermission)
				e.kind(e.b.Mkdir(e.ctx, path+"/new/er", sandbox.MkdirOptions{Scope: scope, Recursive: true}), sandbox.KindPermission)
				e.kind(e.b.Rm(e.ctx, path, sandbox.RmOptions{Scope: scope, Recursive: true}), sandbox.KindPermission)
				_, err = e.b.ReadFileStream(e.ctx, path, sandbox.ReadOptions{Scope: scope})
				e.kind(err, sandbox.KindPermission)
			}
			e.equal(e.exists("out/d"), true)
			e.equal(e.exists("out/d/new"), false)
		}},
		{"rm of a link in the scope", func(e *env) {
			e.sh("mkdir s out; ln -s ../out s/l")
			e.ok(e.b.Rm(e.ctx, "l", sandbox.RmOptions{Scope: e.p("s"), Recursive: true}))
			e.only("out", "s")
		}},
		{"a scope that is not there", func(e *env) {
			_, err := e.b.Stat(e.ctx, "f", sandbox.StatOptions{Scope: e.p("none")})
			e.kind(err, sandbox.KindNotFound)
			e.write("f", "")
			_, err = e.b.Stat(e.ctx, "f", sandbox.StatOptions{Scope: e.p("f")})
			e.kind(err, sandbox.KindNotDirectory)
		}},
		{"the scope itself", func(e *env) {
			e.sh("mkdir s; : > s/f")
			l, err := e.b.ReadDir(e.ctx, ".", sandbox.ReadDirOptions{Scope: e.p("s")})
			e.ok(err)
			e.equal(strings.Join(l.Names, " "), "f")
		}},
	}
}

// refusalChecks walks what every path parameter must refuse.
func refusalChecks() []check {
	calls := map[string]func(e *env, path string) error{
		"read_file": func(e *env, p string) error { _, err := e.b.ReadFile(e.ctx, p, sandbox.ReadOptions{}); return err },
		"read_buffer": func(e *env, p string) error {
			_, err := e.b.ReadFileBuffer(e.ctx, p, sandbox.ReadOptions{})
			return err
		},
		"write_file": func(e *env, p string) error {
			_, err := e.b.WriteFile(e.ctx, p, []byte("x"), sandbox.WriteOptions{})
			return err
		},
		"stat":    func(e *env, p string) error { _, err := e.b.Stat(e.ctx, p, sandbox.StatOptions{}); return err },
		"readdir": func(e *env, p string) error { _, err := e.b.ReadDir(e.ctx, p, sandbox.ReadDirOptions{}); return err },
		"mkdir":   func(e *env, p string) error { return e.b.Mkdir(e.ctx, p, sandbox.MkdirOptions{}) },
		"rm":      func(e *env, p string) error { return e.b.Rm(e.ctx, p, sandbox.RmOptions{}) },
		"read_file_stream": func(e *env, p string) error {
			s, err := e.b.ReadFileStream(e.ctx, p, sandbox.ReadOptions{})
			if err == nil {
				s.Close()
			}
			return err
		},
		"write_file_stream": func(e *env, p string) error {
			_, err := e.b.WriteFileStream(e.ctx, p, strings.NewReader("x"), sandbox.WriteOptions{})
			return err
		},
	}
	var checks []check
	for name, call := range calls {
		checks = append(checks,
			check{name + " of an empty path", func(e *env) { e.kind(call(e, ""), sandbox.KindInvalidParams) }},
			check{name + " with a NUL", func(e *env) { e.kind(call(e, e.p("a\x00b")), sandbox.KindInvalidParams) }},
			check{name + " with a name of 256 bytes", func(e *env) {
				e.kind(call(e, e.p(strings.Repeat("n", 256))), sandbox.KindNameTooLong)
			}},
			check{name + " with a path of 5,000 bytes", func(e *env) {
				e.kind(call(e, e.p(strings.Repeat("d/", 2500)+"f")), sandbox.KindNameTooLong)
			}})
	}
	slices.SortFunc(checks, func(a, b check) int { return strings.Compare(a.name, b.name) })
	return checks
}
