// Command mutants shows that the tests can fail: it breaks a copy of the
// project in one place at a time, on purpose, and runs the tests that must
// notice. It exits 1 when a mutant survives.
//
//	go run ./integration/mutants [NAME...]
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mutant is one deliberate fault.
type mutant struct {
	name  string
	edits []edit
	// run are the arguments of go test.
	run []string
}

// edit replaces the first old in a file; that it is there is checked.
type edit struct{ file, old, new string }

// suite runs the conformance suite on an implementation.
func suite(name string) []string {
	return []string{"-run", "^" + name + "$", "./sandbox/sandboxtest"}
}

func mutants() []mutant {
	return []mutant{
		{"close-is-success", []edit{{"adapter/source.go", "	whole := !s.length.Known", "	if true {\n		return sandbox.ReadVerdict{}, nil\n	}\n	whole := !s.length.Known"}}, suite("TestTCP")},
		{"in-place-write", []edit{{"sandbox/local/sink.go", "	t, err := k.s.newTemp(k.dir)", "	t := &temp{s: k.s, dir: k.dir, forget: func() {}}\n	fd, err := openAt(k.dir, k.name, unix.O_CREAT|unix.O_RDWR|unix.O_TRUNC, 0o644)\n	t.file, t.name = os.NewFile(uintptr(fd), \"temp\"), k.name"},
			{"sandbox/local/sink.go", "	\"io\"\n", "	\"io\"\n	\"os\"\n"}}, suite("TestTCP")},
		{"token-taken-twice", []edit{
			{"transfer/table.go", "	tb.burn(t)\n	if t.state", "	if t.state"},
			{"transfer/table.go", "	if t.state != Minted {", "	if t.state != Minted && t.state != Claimed {"}}, []string{"./transfer"}},
		{"kill-the-child-only", []edit{
			{"sandbox/local/proctree/tree.go", "	t.group.kill()\n	t.proc.Kill()", "	t.proc.Kill()"},
			{"sandbox/local/proctree/tree.go", "		t.group.signal(syscall.SIGTERM)\n", ""}},
			[]string{"-run", "^TestLocal$/^cgroups_auto$/^(exec|tree)$", "./sandbox/sandboxtest"}},
		{"cancel-ignored", []edit{{"rpc/server/dispatch.go", "	case r.Method == rpc.MethodCancel && r.Err == nil:", "	case r.Method == rpc.MethodCancel && r.Err == nil && false:"}}, suite("TestTCP")},
		{"commit-without-count", []edit{
			{"rpc/server/data.go", "	if got.Bytes != want.Value {", "	if false {"},
			{"sandbox/local/sink.go", "	if got != want {", "	if false {"}}, suite("TestTCP")},
		{"stat-invents-mtime", []edit{{"sandbox/local/meta.go", "		stat.ModTime = sandbox.Some(t)", "		stat.ModTime = sandbox.Some(time.Now())"}}, suite("TestTCP")},
		{"write-without-parents", []edit{{"sandbox/local/write.go", "	if sandbox.KindOf(err) != sandbox.KindNotFound {", "	if true {"}}, suite("TestTCP")},
		{"stream-with-parents", []edit{{"sandbox/local/write.go", "	if err != nil && opts.Parents &&", "	if err != nil &&"}}, suite("TestTCP")},
		{"exec-again-after-reconnect", []edit{{"adapter/keyed.go", "	r, err := send(l, key)\n", "	send(l, uuid.NewString())\n	r, err := send(l, key)\n"}},
			[]string{"-run", "TestNeverRunsACommandTwice", "./adapter"}},
	}
}

func main() {
	flag.Parse()
	survivors, err := run(context.Background(), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		fmt.Printf("%d mutants survived\n", survivors)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) (survivors int, err error) {
	dir, err := os.MkdirTemp("", "controld-mutants-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for _, m := range mutants() {
		if len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		noticed, by, err := m.try(ctx, dir)
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.name, err)
		}
		if !noticed {
			survivors++
		}
		fmt.Printf("%-28s %s\n", m.name, by)
	}
	return survivors, nil
}

// try runs the tests on a broken copy and tells whether they fail.
func (m mutant) try(ctx context.Context, dir string) (noticed bool, by string, err error) {
	tree := filepath.Join(dir, m.name)
	if out, err := exec.CommandContext(ctx, "cp", "-r", ".", tree).CombinedOutput(); err != nil {
		return false, "", fmt.Errorf("copy: %s", out)
	}
	defer os.RemoveAll(tree)
	for _, e := range m.edits {
		if err := e.apply(tree); err != nil {
			return false, "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-timeout", "8m"}, m.run...)...)
	cmd.Dir = tree
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false, "SURVIVED", nil
	}
	if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
		return false, "", fmt.Errorf("does not build: %s", out)
	}
	return true, "noticed by " + firstFailure(string(out)), nil
}

var failure = regexp.MustCompile(`--- FAIL: (\S+/\S+/\S+|\S+)`)

// firstFailure names the test that failed, the innermost first.
func firstFailure(out string) string {
	all := failure.FindAllStringSubmatch(out, -1)
	best := "a panic or a timeout"
	for _, m := range all {
		if best == "a panic or a timeout" || strings.Count(m[1], "/") > strings.Count(best, "/") {
			best = m[1]
		}
	}
	return fmt.Sprintf("%s (%d lines of failures)", best, len(all))
}

func (e edit) apply(tree string) error {
	path := filepath.Join(tree, e.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte(e.old)) {
		return fmt.Errorf("%s no longer holds %q", e.file, e.old)
	}
	return os.WriteFile(path, bytes.Replace(text, []byte(e.old), []byte(e.new), 1), 0o600)
}
