//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
	"go.uber.org/goleak"
)

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == keepWord {
		os.Exit(Keep())
	}
	if dir := os.Getenv(victimEnv); dir != "" {
		victim(dir)
	}
	if dir := os.Getenv(keptVictimEnv); dir != "" {
		keptVictim(dir)
	}
	goleak.VerifyTestMain(m)
}

// keepWord makes the test program a keeper.
const keepWord = "keep"

// kind is a way to hold process trees.
type kind struct {
	name    string
	cgroups Cgroups
	kept    bool
}

var allKinds = []kind{{"auto", CgroupsAuto, false}, {"off", CgroupsOff, false}, {"kept", CgroupsOff, true}}

// keeper returns the kind's keeper, which ends with the test.
func (k kind) keeper(t testing.TB) *Keeper {
	if !k.kept {
		return nil
	}
	keeper := newKeeper()
	t.Cleanup(keeper.Close)
	return keeper
}

func newKeeper() *Keeper { return NewKeeper("/proc/self/exe", os.Args[0], keepWord) }

// kinds runs a test for all ways to hold process trees.
func kinds(t *testing.T, test func(t *testing.T, s *Sandbox)) {
	t.Helper()
	for _, k := range allKinds {
		t.Run(k.name, func(t *testing.T) { test(t, open(t, Options{Cgroups: k.cgroups, Keeper: k.keeper(t)})) })
	}
}

// open makes a sandbox that the test closes; descriptors must not be left.
func open(t *testing.T, o Options) *Sandbox {
	t.Helper()
	if o.DefaultCwd == "" {
		o.DefaultCwd = t.TempDir()
	}
	if o.StateDir == "" {
		o.StateDir = t.TempDir()
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine the end of a tree takes its time.
	s.killPatience = patience
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error("Close:", err)
		}
		if left, _ := os.ReadDir(o.StateDir); len(left) > 0 {
			t.Errorf("left in the state directory: %v", left)
		}
	})
	before := countFDs(t)
	t.Cleanup(func() {
		eventually(t, "descriptors are closed", func() bool { return countFDs(t) <= before+4*s.leftCount()+extraFDs(s) })
	})
	return s
}

// extraFDs is what a sandbox keeps open between calls: pooled cgroups.
func extraFDs(s *Sandbox) int {
	if s.forest.Kind() == "cgroup" {
		return 2 * 64
	}
	return 8
}

func countFDs(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// eventually waits for what is about to happen.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// want checks an error's kind, and that it is a sandbox.Error with op and path.
func want(t *testing.T, err error, kind sandbox.Kind, op, path string) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) {
		t.Fatalf("%s %q: %v, want kind %s", op, path, err, kind)
	}
	if e.Kind != kind || e.Op != op || e.Path != path {
		t.Fatalf("kind %s, op %q, path %q (%v), want %s, %q, %q", e.Kind, e.Op, e.Path, err, kind, op, path)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// noTemps fails when anything but the named files is in a directory.
func noTemps(t *testing.T, dir string) {
	t.Helper()
	for _, e := range must(os.ReadDir(dir)) {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func isRoot() bool { return os.Getuid() == 0 }

func bg() context.Context { return context.Background() }

func TestInfo(t *testing.T) {
	kinds(t, func(t *testing.T, s *Sandbox) {
		info := must(s.Info(bg()))
		if info.Cwd != s.opts.DefaultCwd || info.Epoch == "" || info.Limits != sandbox.DefaultLimits() || info.Tree == "" {
			t.Errorf("%+v", info)
		}
		if s.opts.Cgroups == CgroupsOff && info.Tree != "subreaper" {
			t.Error(info.Tree)
		}
	})
}

func TestNewMakesCwd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	open(t, Options{DefaultCwd: dir})
	if st := must(os.Stat(dir)); st.Mode().Perm() != 0o755 {
		t.Error(st.Mode())
	}
	if _, err := New(Options{}); sandbox.KindOf(err) != sandbox.KindInvalidParams {
		t.Error(err)
	}
}

func TestClosed(t *testing.T) {
	s, err := New(Options{DefaultCwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if first, second := s.Close(), s.Close(); first != nil || second != nil {
		t.Error("Close")
	}
	_, err = s.Exec(bg(), "true", sandbox.ExecOptions{})
	want(t, err, sandbox.KindUnavailable, "exec", "")
	_, err = s.Stat(bg(), "x", sandbox.StatOptions{})
	want(t, err, sandbox.KindUnavailable, "stat", "x")
}

func ExampleNew() {
	s, err := New(Options{DefaultCwd: must(os.MkdirTemp("", "example-"))})
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(s.opts.DefaultCwd)
	defer s.Close()
	res, _ := s.Exec(context.Background(), "printf hello; exit 3", sandbox.ExecOptions{})
	fmt.Println(string(res.Stdout), res.ExitCode)
	// Output: hello 3
}
