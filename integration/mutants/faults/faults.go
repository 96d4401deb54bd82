// Package faults is the list of deliberate faults: edits that break the project
// in one place, each with the test that must notice. Command mutants shows that
// the tests do; command prove shows what its goals say of a broken project.
//
// What does not belong here: running tests or provers.
package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Fault is one deliberate fault and the test that is named for it.
type Fault struct {
	Name  string
	Test  Test
	Edits []Edit
}

// Test is a test of a package, or one below it: names are told apart by
// slashes, as the go command prints them.
type Test struct{ Pkg, Name string }

// String returns the test as the go command takes it.
func (t Test) String() string { return t.Pkg + " " + t.Name }

// Edit replaces the first Old in a file by New; that Old is there is checked.
type Edit struct{ File, Old, New string }

// Named returns the fault of that name.
func Named(name string) (Fault, error) {
	all := All()
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, fmt.Errorf("there is no mutant %s", name)
	}
	return all[i], nil
}

// Copy copies a tree to a place that does not exist yet, so that the copy can
// be broken.
func Copy(ctx context.Context, tree, to string) error {
	cmd := exec.CommandContext(ctx, "cp", "-r", ".", to)
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy: %w: %s", err, out)
	}
	return nil
}

// Break makes the fault in a copy of the project and returns what mends it.
// After an error nothing is broken.
func (f Fault) Break(tree string) (mend func(), err error) {
	var undo []func()
	mend = func() {
		for _, u := range slices.Backward(undo) {
			u()
		}
	}
	for _, e := range f.Edits {
		u, err := e.apply(tree)
		if err != nil {
			mend()
			return nil, err
		}
		undo = append(undo, u)
	}
	return mend, nil
}

// apply breaks a file and returns what mends it.
func (e Edit) apply(tree string) (mend func(), err error) {
	path := filepath.Join(tree, e.File)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(text, []byte(e.Old)) {
		return nil, fmt.Errorf("%s no longer holds %q", e.File, e.Old)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(e.Old), []byte(e.New), 1), 0o600); err != nil {
		return nil, err
	}
	return func() { os.WriteFile(path, text, 0o600) }, nil
}
