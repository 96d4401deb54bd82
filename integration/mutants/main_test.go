package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEditsStillApply finds a mutant whose place in the code has moved: it
// would break nothing, or not build, and show nothing.
func TestEditsStillApply(t *testing.T) {
	for _, m := range mutants() {
		for _, e := range m.edits {
			text, err := os.ReadFile(filepath.Join("..", "..", e.file))
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(string(text), e.old) {
				t.Errorf("%s: %s no longer holds %q", m.name, e.file, e.old)
			}
		}
	}
}
