package main

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
	for _, m := range mutants {
		if seen[m.name] {
			t.Errorf("%s is there twice", m.name)
		}
		seen[m.name] = true
		for _, e := range m.edits {
			text, err := os.ReadFile(filepath.Join("..", "..", e.file))
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(string(text), e.old) {
				t.Errorf("%s: %s no longer holds %q", m.name, e.file, e.old)
			}
		}
		if !exists(t, m.test) {
			t.Errorf("%s: there is no test %s", m.name, m.test)
		}
	}
}

// exists looks for the function of a test in the files of its package.
func exists(t *testing.T, which test) bool {
	t.Helper()
	name, _, _ := strings.Cut(which.name, "/")
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(t \*testing\.T\)`)
	files, err := filepath.Glob(filepath.Join("..", "..", which.pkg, "*_test.go"))
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

// TestJudge: only the named test, or a part of it, counts as having noticed.
func TestJudge(t *testing.T) {
	named := test{"./p", "TestA/b"}
	for _, c := range []struct {
		what    string
		r       result
		noticed bool
	}{
		{"it failed", result{failed: []string{"TestA/b"}}, true},
		{"a part of it failed", result{failed: []string{"TestA/b/c"}}, true},
		{"another failed", result{failed: []string{"TestA/bc", "TestA"}}, false},
		{"it passed", result{passed: map[string]bool{"TestA/b": true}}, false},
		{"it never ended", result{output: "panic: test timed out"}, false},
		{"nothing ran", result{}, false},
	} {
		if got := c.r.judge(named); got.noticed != c.noticed {
			t.Errorf("%s: %s", c.what, got)
		}
	}
	if got, want := pattern("TestA/b(c)"), `^TestA$/^b\(c\)$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
