package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEditsStillApply finds a mutant whose place in the code has moved, or
// whose test has: it would break nothing, or not build, and show nothing.
func TestEditsStillApply(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range All() {
		if seen[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		seen[m.Name] = true
		for _, e := range m.Edits {
			text, err := os.ReadFile(filepath.Join("..", "..", "..", e.File))
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(string(text), e.Old) {
				t.Errorf("%s: %s no longer holds %q", m.Name, e.File, e.Old)
			}
		}
		if !exists(t, m.Test) {
			t.Errorf("%s: there is no test %s", m.Name, m.Test)
		}
	}
}

// exists looks for the function of a test in the files of its package.
func exists(t *testing.T, which Test) bool {
	t.Helper()
	name, _, _ := strings.Cut(which.Name, "/")
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(t \*testing\.T\)`)
	files, err := filepath.Glob(filepath.Join("..", "..", "..", which.Pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) {
			return true
		}
	}
	return false
}

// TestBreakAndMend: a tree is broken whole or not at all, and whole again
// afterwards.
func TestBreakAndMend(t *testing.T) {
	tree := t.TempDir()
	file := filepath.Join(tree, "f")
	holds := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("one two one"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Fault{Edits: []Edit{{"f", "one", "three"}, {"f", "two", "four"}}}
	mend, err := f.Break(tree)
	if err != nil {
		t.Fatal(err)
	}
	holds("three four one")
	mend()
	holds("one two one")
	f.Edits = append(f.Edits, Edit{"f", "five", "six"})
	if _, err := f.Break(tree); err == nil {
		t.Error("an edit that changes nothing is no error")
	}
	holds("one two one")
}
