package goals

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/controld/controld/integration/mutants/faults"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// TestTable: every goal can be told apart, says what it promises and misses
// something where nothing was tried.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range All(nil) {
		if seen[g.ID] || g.Promise == "" || g.Quick <= 0 || g.Open == nil {
			t.Errorf("%+v", g)
		}
		seen[g.ID] = true
		if g.Mutant != "" {
			if _, err := faults.Named(g.Mutant); err != nil {
				t.Errorf("%s: %v", g.ID, err)
			}
		}
		if missing := g.Judge(&proof.Tally{Tries: g.Quick}); len(missing) == 0 && g.ID != "G5" {
			t.Errorf("%s misses nothing where nothing was tried", g.ID)
		}
	}
}

// TestEveryGoalHoldsAtAPoint tries the first points of each goal, on one
// daemon after another.
func TestEveryGoalHoldsAtAPoint(t *testing.T) {
	tree, err := ground.Tree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	on, err := ground.New(t.Context(), tree)
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	for _, g := range All(on) {
		t.Run(g.ID, func(t *testing.T) {
			tally, err := proof.Run{Goal: g, Seed: 7, To: 2}.Do(t.Context())
			var lacking proof.Lacking
			if errors.As(err, &lacking) {
				t.Skip(lacking)
			}
			if err != nil || tally.Broken > 0 || tally.Tries < 2 {
				t.Errorf("%+v, %v", tally, err)
			}
		})
	}
}

// TestOpen: an error that leaves an outcome open is told from one that does not.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		err  error
		open bool
	}{
		{errors.New("anything"), true},
		{&sandbox.Error{Kind: sandbox.KindConnectionLost, Outcome: sandbox.OutcomeUnknown}, true},
		{&sandbox.Error{Kind: sandbox.KindConnectionLost}, true},
		{&sandbox.Error{Kind: sandbox.KindConnectionLost, Outcome: sandbox.OutcomeNone}, false},
		{&sandbox.Error{Kind: sandbox.KindNoSpace, Outcome: sandbox.OutcomeUnknown}, true},
		{&sandbox.Error{Kind: sandbox.KindNoSpace}, false},
	} {
		if got := open(c.err); got != c.open {
			t.Errorf("%+v: open %v", c.err, got)
		}
	}
}

// TestArenaNoticesEscapes: what a call leaves outside is noticed and put right.
func TestArenaNoticesEscapes(t *testing.T) {
	cwd := t.TempDir()
	ar := &arena{scope: filepath.Join(cwd, "s"), out: filepath.Join(cwd, "out")}
	if err := ar.furnish(); err != nil {
		t.Fatal(err)
	}
	defer ar.inside.Close()
	defer ar.outside.Close()
	for name, do := range map[string]func() error{
		"nothing": func() error { return nil },
		"write":   func() error { return os.WriteFile(filepath.Join(ar.out, "f"), []byte(insideText), 0o644) },
		"mkdir":   func() error { return os.Mkdir(filepath.Join(ar.out, "new"), 0o755) },
		"rm":      func() error { return os.Remove(filepath.Join(ar.out, "victim")) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if got, want := ar.escaped(inside), name != "nothing"; got != want {
			t.Errorf("%s: escaped %v", name, got)
		}
		if ar.escaped(inside) {
			t.Errorf("%s: not put right", name)
		}
	}
	if !ar.escaped(led) {
		t.Error("what a call saw is not noticed")
	}
}

// TestSearchNoticesSecrets: in clear, in hex and in base64, wherever they
// begin; what may be there is none.
func TestSearchNoticesSecrets(t *testing.T) {
	h := &hidden{secrets: map[string]string{"0123-4567": "a request key"}}
	coded := func(before string) string { return base64.StdEncoding.EncodeToString([]byte(before + canary + "12")) }
	for text, want := range map[string]int{
		"a " + canary + "77 in it": 1, coded(""): 1, coded("x"): 1, coded("xx"): 1, coded("xxx"): 1, hex.EncodeToString([]byte(canary)): 1,
		"nothing": 0, coded("")[:4]: 0, "its key is 0123-4567": 1,
	} {
		var tally proof.Tally
		h.search(&tally, 0, "a text", []byte(text), nil)
		if tally.Broken != want {
			t.Errorf("%q: %+v", text, tally.Violations)
		}
	}
	var tally proof.Tally
	if h.search(&tally, 0, "a text", []byte("0123-4567"), keysOfRequests); tally.Broken > 0 {
		t.Errorf("%+v", tally.Violations)
	}
}
