package main

import (
	"testing"

	"github.com/controld/controld/integration/mutants/faults"
)

// TestJudge: only the named test, or a part of it, counts as having noticed.
func TestJudge(t *testing.T) {
	named := faults.Test{Pkg: "./p", Name: "TestA/b"}
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
