// Package sandboxtest is the conformance suite: what every implementation of
// [sandbox.Backend] must do, the remote ones included. It drives a backend
// through its interface alone and makes its fixtures with the backend's own
// commands, so that it runs against anything.
//
// What does not belong here: tests of one implementation's insides, wire
// formats, speed.
package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// patience bounds every single check; nothing in the suite takes a tenth.
const patience = 60 * time.Second

// Run runs every check against the backend, each in a directory of its own.
// The backend is closed by the caller.
func Run(t *testing.T, b sandbox.Backend) {
	n := 0
	for _, group := range groups() {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.checks {
				n++
				t.Run(c.name, func(t *testing.T) { c.run(newEnv(t, b)) })
			}
		})
	}
	t.Logf("%d checks", n)
}

// Count is how many checks the suite has.
func Count() int {
	n := 0
	for _, g := range groups() {
		n += len(g.checks)
	}
	return n
}

type group struct {
	name   string
	checks []check
}

type check struct {
	name string
	run  func(e *env)
}

func groups() []group {
	return []group{
		{"info", infoChecks()},
		{"read", readChecks()},
		{"write", writeChecks()},
		{"stat", statChecks()},
		{"dir", dirChecks()},
		{"rm", rmChecks()},
		{"names", nameChecks()},
		{"scope", scopeChecks()},
		{"refusals", refusalChecks()},
		{"exec", execChecks()},
		{"tree", treeChecks()},
		{"readstream", readStreamChecks()},
		{"writestream", writeStreamChecks()},
		{"cancel", cancelChecks()},
		{"parallel", parallelChecks()},
	}
}

var dirCount atomic.Int64

// env is one check's place to work.
type env struct {
	*testing.T
	b   sandbox.Backend
	ctx context.Context
	// dir is a fresh directory; paths of a check are below it.
	dir string
}

func newEnv(t *testing.T, b sandbox.Backend) *env {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	e := &env{T: t, b: b, ctx: ctx, dir: fmt.Sprintf("check-%d-%d", time.Now().UnixNano(), dirCount.Add(1))}
	e.ok(b.Mkdir(ctx, e.dir, sandbox.MkdirOptions{}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Rm(ctx, e.dir, sandbox.RmOptions{Recursive: true, Force: true}); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return e
}

// p returns the path of a name in the check's directory.
func (e *env) p(name string) string { return e.dir + "/" + name }

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// kind checks the kind of an error, and that it is a typed one.
func (e *env) kind(err error, want sandbox.Kind) *sandbox.Error {
	e.Helper()
	if got := sandbox.KindOf(err); got != want {
		e.Fatalf("kind %q (%v), want %q", got, err, want)
	}
	var se *sandbox.Error
	if !errors.As(err, &se) {
		e.Fatalf("%T is no *sandbox.Error", err)
	}
	return se
}

// kindIn checks that the kind is one of several that are all right.
func (e *env) kindIn(err error, want ...sandbox.Kind) {
	e.Helper()
	got := sandbox.KindOf(err)
	for _, k := range want {
		if got == k {
			return
		}
	}
	e.Fatalf("kind %q (%v), want one of %q", got, err, want)
}

func (e *env) write(name, content string) sandbox.WriteInfo {
	e.Helper()
	info, err := e.b.WriteFile(e.ctx, e.p(name), []byte(content), sandbox.WriteOptions{})
	e.ok(err)
	return info
}

func (e *env) read(name string) string {
	e.Helper()
	c, err := e.b.ReadFileBuffer(e.ctx, e.p(name), sandbox.ReadOptions{})
	e.ok(err)
	return string(c.Data)
}

func (e *env) stat(name string) sandbox.FileStat {
	e.Helper()
	st, err := e.b.Stat(e.ctx, e.p(name), sandbox.StatOptions{})
	e.ok(err)
	return st
}

func (e *env) exists(name string) bool {
	e.Helper()
	ok, err := e.b.Exists(e.ctx, e.p(name), sandbox.ExistsOptions{})
	e.ok(err)
	return ok
}

// sh runs a command in the check's directory that must succeed.
func (e *env) sh(command string) string {
	e.Helper()
	res := e.exec(command, sandbox.ExecOptions{})
	if res.ExitCode != 0 {
		e.Fatalf("%q: exit %d: %s%s", command, res.ExitCode, res.Stdout, res.Stderr)
	}
	return string(res.Stdout)
}

func (e *env) exec(command string, opts sandbox.ExecOptions) sandbox.ShellResult {
	e.Helper()
	if opts.Cwd == "" {
		opts.Cwd = e.dir
	}
	res, err := e.b.Exec(e.ctx, command, opts)
	e.ok(err)
	return res
}

// abs is the check's directory as commands see it.
func (e *env) abs() string {
	e.Helper()
	return strings.TrimSuffix(e.sh("pwd -P"), "\n")
}

func (e *env) names() []string {
	e.Helper()
	l, err := e.b.ReadDir(e.ctx, e.dir, sandbox.ReadDirOptions{})
	e.ok(err)
	return l.Names
}

// only checks that the directory holds these names and nothing else, such as
// a temporary file.
func (e *env) only(want ...string) {
	e.Helper()
	if got := e.names(); strings.Join(got, "\x00") != strings.Join(want, "\x00") {
		e.Fatalf("directory holds %q, want %q", got, want)
	}
}

func (e *env) equal(got, want any) {
	e.Helper()
	if got != want {
		e.Fatalf("got %.200q, want %.200q", fmt.Sprint(got), fmt.Sprint(want))
	}
}

// is checks errors.Is for several targets.
func (e *env) is(err error, targets ...error) {
	e.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			e.Errorf("errors.Is(%v, %v) is false", err, target)
		}
	}
}

func infoChecks() []check {
	return []check{
		{"cwd", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			if !strings.HasPrefix(info.Cwd, "/") {
				e.Fatalf("cwd %q", info.Cwd)
			}
			st, err := e.b.Stat(e.ctx, info.Cwd, sandbox.StatOptions{})
			e.ok(err)
			e.equal(st.Type, sandbox.TypeDirectory)
		}},
		{"epoch", func(e *env) {
			a, err := e.b.Info(e.ctx)
			e.ok(err)
			b, err := e.b.Info(e.ctx)
			e.ok(err)
			if a.Epoch == "" || a.Epoch != b.Epoch {
				e.Fatalf("epochs %q, %q", a.Epoch, b.Epoch)
			}
		}},
		{"capabilities", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			for _, want := range []string{sandbox.CapExec, sandbox.CapScope, sandbox.CapIfMatch, sandbox.CapSync, sandbox.CapDigest} {
				if !strings.Contains(" "+strings.Join(info.Capabilities, " ")+" ", " "+want+" ") {
					e.Errorf("no %q in %q", want, info.Capabilities)
				}
			}
		}},
		{"limits", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			if info.Limits.MaxBufferedBytes <= 0 || info.Limits.MaxOutputBytes <= 0 {
				e.Fatalf("limits %+v", info.Limits)
			}
		}},
		{"relative paths start at the cwd", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			e.write("f", "x")
			st, err := e.b.Stat(e.ctx, info.Cwd+"/"+e.p("f"), sandbox.StatOptions{})
			e.ok(err)
			e.equal(st.Type, sandbox.TypeFile)
		}},
		{"errors are errors.Is alike", func(e *env) {
			_, err := e.b.Stat(e.ctx, e.p("none"), sandbox.StatOptions{})
			e.is(err, fs.ErrNotExist, syscall.ENOENT, &sandbox.Error{Kind: sandbox.KindNotFound})
			err = e.b.Mkdir(e.ctx, e.dir, sandbox.MkdirOptions{})
			e.is(err, fs.ErrExist, syscall.EEXIST)
		}},
		{"errors name op and path", func(e *env) {
			_, err := e.b.Stat(e.ctx, e.p("none"), sandbox.StatOptions{})
			se := e.kind(err, sandbox.KindNotFound)
			e.equal(se.Op, "stat")
			e.equal(se.Path, e.p("none"))
			e.equal(se.Errno, "ENOENT")
		}},
	}
}
