package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryRuleHasATest compares the rules of docs/protocol.md with those that
// the tests name, in a comment or in the name of a subtest.
func TestEveryRuleHasATest(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]bool{}
	for _, m := range ruleDefined.FindAllStringSubmatch(string(page), -1) {
		if defined[m[1]] {
			t.Errorf("%s stands twice on the page", m[1])
		}
		defined[m[1]] = true
	}
	for _, id := range ruleNamed.FindAllString(string(page), -1) {
		if !defined[id] {
			t.Errorf("the page speaks of %s, which it does not have", id)
		}
	}
	named := rulesInTests(t)
	for id, files := range named {
		if !defined[id] {
			t.Errorf("%s names %s, which the page does not have", files[0], id)
		}
	}
	for id := range defined {
		if named[id] == nil {
			t.Errorf("no test names %s", id)
		}
	}
	t.Logf("%d rules", len(defined))
}

// rulesInTests returns the rules that tests name, with their files.
func rulesInTests(t *testing.T) map[string][]string {
	t.Helper()
	named := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, id := range ruleNamed.FindAllString(string(text), -1) {
			if !slices.Contains(named[id], path) {
				named[id] = append(named[id], path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return named
}
