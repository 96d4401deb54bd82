package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/controld/controld/sandbox"
)

// TestFailuresBehindTheDeed has the last system call of an operation fail, when
// what was asked for is there already: it is taken back, or the error leaves it
// open.
func TestFailuresBehindTheDeed(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	sb := p.client(t, d)
	if _, err := sb.WriteFile(t.Context(), "f", []byte("old"), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	failing := func(call, path string, do func() error) *sandbox.Error {
		t.Helper()
		tracer := trace(t, d, os.DevNull, "inject="+call+":error=ENOSPC", "-P", path)
		defer func() {
			tracer.Process.Signal(os.Interrupt)
			tracer.Wait()
		}()
		return wantKind(t, do(), sandbox.KindNoSpace)
	}
	dir := filepath.Join(p.cwd(), "new")
	failing("fstat", dir, func() error { return sb.Mkdir(t.Context(), "new", sandbox.MkdirOptions{}) })
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	e := failing("fsync", p.cwd(), func() error {
		_, err := sb.WriteFileStream(t.Context(), "f", strings.NewReader("new"), sandbox.WriteOptions{Sync: true})
		return err
	})
	if text, err := os.ReadFile(filepath.Join(p.cwd(), "f")); err != nil || string(text) != "new" || e.Outcome != sandbox.OutcomeUnknown {
		t.Errorf("the file holds %q, %v, and it said outcome %q", text, err, e.Outcome)
	}
}
