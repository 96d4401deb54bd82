package sandboxtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/controld/controld/sandbox"
)

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
