package sandboxtest

import (
	"slices"
	"strings"

	"github.com/controld/controld/sandbox"
)

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
