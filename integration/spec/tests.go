package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ruleNamed finds the rules of docs/protocol.md in a comment or a string.
var ruleNamed = regexp.MustCompile(`\bP\d+\.\d+\b`)

// tests are the tests of a tree: "dir: TestName", each with the rules that it
// names.
type tests map[string][]string

// scan reads the tests below root.
func scan(root string) (tests, error) {
	found := tests{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		return found.file(filepath.ToSlash(dir), path)
	})
	return found, err
}

// file adds the tests of one file. What a comment or a string between two tests
// says belongs to the one before.
func (t tests) file(dir, path string) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !isTest(f.Name.Name) {
			continue
		}
		id := dir + ": " + f.Name.Name
		t[id] = append(t[id], rulesOf(file, f)...)
		slices.Sort(t[id])
		t[id] = slices.Compact(t[id])
	}
	return nil
}

func isTest(name string) bool {
	return strings.HasPrefix(name, "Test") && name != "TestMain" || strings.HasPrefix(name, "Fuzz")
}

// rulesOf returns the rules that are named above a test and within it.
func rulesOf(file *ast.File, f *ast.FuncDecl) (rules []string) {
	rules = ruleNamed.FindAllString(f.Doc.Text(), -1)
	for _, c := range file.Comments {
		if f.Pos() <= c.Pos() && c.End() <= f.End() {
			rules = append(rules, ruleNamed.FindAllString(c.Text(), -1)...)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			rules = append(rules, ruleNamed.FindAllString(lit.Value, -1)...)
		}
		return true
	})
	return rules
}

// of returns the tests that name a rule, in order.
func (t tests) of(rule string) (ids []string) {
	for id, rules := range t {
		if slices.Contains(rules, rule) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
