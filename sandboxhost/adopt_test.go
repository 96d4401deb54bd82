package sandboxhost_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/controld/controld/sandboxhost"
)

// keeper is a driver whose sandboxes outlive the host that started them.
type keeper struct {
	driver
	living map[string]bool // by instance
	// resumed is told of what was taken over and resumed.
	resumed chan string
	asked   []sandboxhost.Spec
}

func (d *keeper) Adopt(_ context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, spec)
	switch {
	case d.driver.fail.Load():
		return nil, errors.New("the engine does not answer")
	case !d.living[spec.ID]:
		return nil, sandboxhost.ErrGone
	}
	d.resumed = make(chan string, 1)
	return &taken{instance: &instance{spec: spec, done: make(chan struct{})}, resumed: d.resumed}, nil
}

// taken is an instance that was taken over.
type taken struct {
	*instance
	resumed chan string
}

func (i *taken) Resume(context.Context) error {
	i.resumed <- i.spec.ID
	return nil
}

// TestAdopt: what lives is taken over, what does not is cleared away, and what
// cannot be told is left alone and named.
func TestAdopt(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	open := func(d sandboxhost.Driver) *sandboxhost.Host {
		t.Helper()
		h, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: d})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := &keeper{living: make(map[string]bool)}
	killed := open(first) // never closed
	for _, name := range []string{"lives", "gone"} {
		if _, err := killed.Backend(t.Context(), "acme", name); err != nil {
			t.Fatal(err)
		}
	}
	lives, gone := first.specs[0], first.specs[1]
	if lives.ID == gone.ID || lives.Secret == gone.Secret || lives.Run == gone.Run {
		t.Fatalf("%+v, %+v", lives, gone)
	}
	if info, err := os.Stat(filepath.Join(lives.Run, "spec.json")); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for name, text := range map[string]string{"empty": "", "garbage": "{", "other": `{"id": "another", "driver": "test"}`, "foreign": `{"id": "foreign", "driver": "nobody's"}`} {
		dir := filepath.Join(state, "run", name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}

	second := &keeper{living: map[string]bool{lives.ID: true}}
	h := open(second)
	err := h.Adopt(t.Context())
	for _, want := range []string{"garbage", "other", "foreign", "nobody's"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
	if _, err := h.Backend(t.Context(), "acme", "lives"); err != nil {
		t.Fatal(err)
	}
	if n := second.starts.Load(); n != 0 {
		t.Errorf("%d starts", n)
	}
	for _, spec := range second.asked {
		if spec.ID == lives.ID && (spec.Secret != lives.Secret || spec.Dir != lives.Dir || spec.Epoch != h.Epoch() || spec.IDs != lives.IDs) {
			t.Errorf("%+v was %+v", spec, lives)
		}
	}
	for name, want := range map[string]bool{lives.ID: true, gone.ID: false, "empty": false, "garbage": true, "other": true, "foreign": true} {
		if _, err := os.Stat(filepath.Join(state, "run", name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(lives.Run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("behind the end: %v", err)
	}
}

// TestAdoptThatFails: an instance of which nothing is known stays written down.
func TestAdoptThatFails(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	d := &keeper{}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Backend(t.Context(), "acme", "one"); err != nil {
		t.Fatal(err)
	}
	d.driver.fail.Store(true)
	again, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: d})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(d.specs[0].Run); err != nil {
		t.Error(err)
	}
}

// TestIDs: a sandbox has the same users for ever, and no other has them.
func TestIDs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has users to give away")
	}
	state := filepath.Join(t.TempDir(), "state")
	seen := make(map[sandboxhost.IDs]string)
	for range 2 {
		d := &driver{}
		h, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: d})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			for _, tenant := range []string{"x", "y"} {
				if _, err := h.Backend(t.Context(), tenant, name); err != nil {
					t.Fatal(err)
				}
				ids := d.last.spec.IDs
				if whose := seen[ids]; whose != "" && whose != tenant+"/"+name || ids.Base < 1<<30 || ids.Count != 65536 || ids.Base%ids.Count != 0 {
					t.Errorf("%s/%s has %+v, as %s", tenant, name, ids, whose)
				}
				seen[ids] = tenant + "/" + name
			}
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%v", seen)
	}
}
