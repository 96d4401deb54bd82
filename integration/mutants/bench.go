package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"github.com/controld/controld/integration/mutants/faults"
)

// bench is the copy that is broken and mended again. It stays in one place, so
// that what no mutant touches is built once.
type bench struct {
	tree  string
	whole map[faults.Test]bool // those that have passed while nothing was broken
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
func (b *bench) try(ctx context.Context, m faults.Fault) (v verdict, err error) {
	if !b.whole[m.Test] {
		r, err := b.run(ctx, m.Test)
		if err != nil {
			return v, err
		}
		if !r.passed[m.Test.Name] {
			return v, fmt.Errorf("%s does not pass on the unbroken project:\n%s", m.Test, r.output)
		}
		b.whole[m.Test] = true
	}
	mend, err := m.Break(b.tree)
	if err != nil {
		return v, err
	}
	defer mend()
	r, err := b.run(ctx, m.Test)
	if err != nil {
		return v, err
	}
	return r.judge(m.Test), nil
}

// result is what a run of a test said.
type result struct {
	passed map[string]bool
	failed []string // innermost first
	output string
}

// run runs one test. An error is one of the project that does not build.
func (b *bench) run(ctx context.Context, t faults.Test) (result, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-timeout", "1m", "-run", pattern(t.Name), t.Pkg)
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
func (r result) judge(t faults.Test) verdict {
	for _, name := range r.failed {
		if name == t.Name || strings.HasPrefix(name, t.Name+"/") {
			return verdict{true, faults.Test{Pkg: t.Pkg, Name: name}.String()}
		}
	}
	if r.passed[t.Name] {
		return verdict{false, t.String() + " passes"}
	}
	lines := strings.Split(strings.TrimSpace(r.output), "\n")
	return verdict{false, fmt.Sprintf("%s neither passed nor failed; %s", t, lines[len(lines)-1])}
}
