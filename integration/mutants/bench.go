package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is one deliberate fault and the test that is named for it.
type mutant struct {
	name  string
	test  test
	edits []edit
}

// test is a test of a package, or one below it: names are told apart by
// slashes, as the go command prints them.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// edit replaces the first old in a file; that it is there is checked.
type edit struct{ file, old, new string }

// bench is the copy that is broken and mended again. It stays in one place, so
// that what no mutant touches is built once.
type bench struct {
	tree  string
	whole map[test]bool // those that have passed while nothing was broken
}

func (b *bench) copy(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "cp", "-r", ".", b.tree).CombinedOutput(); err != nil {
		return fmt.Errorf("copy: %s", out)
	}
	return nil
}

// verdict is what the test said of a mutant.
type verdict struct {
	noticed bool
	why     string
}

func (v verdict) String() string {
	if v.noticed {
		return "noticed by " + v.why
	}
	return "SURVIVED: " + v.why
}

// try breaks the copy, runs the test and mends the copy. The test has to pass
// before: one that fails anyway notices nothing.
func (b *bench) try(ctx context.Context, m mutant) (v verdict, err error) {
	if !b.whole[m.test] {
		r, err := b.run(ctx, m.test)
		if err != nil {
			return v, err
		}
		if !r.passed[m.test.name] {
			return v, fmt.Errorf("%s does not pass on the unbroken project:\n%s", m.test, r.output)
		}
		b.whole[m.test] = true
	}
	for _, e := range m.edits {
		mend, err := e.apply(b.tree)
		if err != nil {
			return v, err
		}
		defer mend()
	}
	r, err := b.run(ctx, m.test)
	if err != nil {
		return v, err
	}
	return r.judge(m.test), nil
}

// apply breaks a file and returns what mends it.
func (e edit) apply(tree string) (mend func(), err error) {
	path := filepath.Join(tree, e.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(text, []byte(e.old)) {
		return nil, fmt.Errorf("%s no longer holds %q", e.file, e.old)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(e.old), []byte(e.new), 1), 0o600); err != nil {
		return nil, err
	}
	return func() { os.WriteFile(path, text, 0o600) }, nil
}

// result is what a run of a test said.
type result struct {
	passed map[string]bool
	failed []string // innermost first
	output string
}

// run runs one test. An error is one of the project that does not build.
func (b *bench) run(ctx context.Context, t test) (result, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-timeout", "1m", "-run", pattern(t.name), t.pkg)
	cmd.Dir = b.tree
	out, err := cmd.Output() // that it failed is told by what it said
	r := result{passed: make(map[string]bool)}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var e struct{ Action, Test, Output string }
		if err := dec.Decode(&e); err != nil {
			return r, err
		}
		r.output += e.Output
		switch {
		case e.Action == "build-fail":
			return r, fmt.Errorf("does not build:\n%s", r.output)
		case e.Action == "pass" && e.Test != "":
			r.passed[e.Test] = true
		case e.Action == "fail" && e.Test != "":
			r.failed = append(r.failed, e.Test)
		}
	}
	if len(out) == 0 && err != nil {
		return r, err
	}
	return r, nil
}

// pattern selects a test and what is below it.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// judge tells whether it was the named test that failed, or one below it.
func (r result) judge(t test) verdict {
	for _, name := range r.failed {
		if name == t.name || strings.HasPrefix(name, t.name+"/") {
			return verdict{true, test{t.pkg, name}.String()}
		}
	}
	if r.passed[t.name] {
		return verdict{false, t.String() + " passes"}
	}
	lines := strings.Split(strings.TrimSpace(r.output), "\n")
	return verdict{false, fmt.Sprintf("%s neither passed nor failed; %s", t, lines[len(lines)-1])}
}
