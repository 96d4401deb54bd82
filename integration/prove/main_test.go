package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/controld/controld/integration/prove/proof"
)

// lineAt writes a file of one record and returns a bench on it.
func lineAt(t *testing.T, r proof.Record, o options) *bench {
	t.Helper()
	if o.out == "" {
		o.out = filepath.Join(t.TempDir(), "out")
	}
	if err := proof.NewFile(o.out).Put(r); err != nil {
		t.Fatal(err)
	}
	file, err := proof.OpenFile(o.out)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{options: o, file: file}
}

// counting is a goal of which no point fails, and that counts them.
func counting(tried *int) proof.Goal {
	return proof.Goal{ID: "G", Lanes: 1, Open: func(context.Context) (proof.Prover, error) { return counter{tried}, nil }}
}

type counter struct{ tried *int }

func (c counter) Try(context.Context, *proof.Point) error { *c.tried++; return nil }
func (c counter) Close(*proof.Tally) error                { return nil }

// TestResume: a run goes on behind what is counted, and not at all when it is
// over; another seed is another run.
func TestResume(t *testing.T) {
	for name, c := range map[string]struct {
		verdict string
		seed    uint64
		want    int
	}{
		"goes on": {proof.Running, 1, 6}, "is over": {proof.Held, 1, 0}, "is another": {proof.Running, 2, 10},
	} {
		tried := 0
		g := counting(&tried)
		b := lineAt(t, proof.Record{Goal: "G", Seed: 1, Points: 10, Done: 4, Verdict: c.verdict, Tally: proof.Tally{Tries: 4}}, options{n: 10, seed: c.seed})
		r, err := b.tryGoal(t.Context(), g)
		if err != nil || tried != c.want {
			t.Errorf("%s: tried %d, %v", name, tried, err)
		}
		if r.Verdict != proof.Held || r.Tries != map[bool]int{true: 4, false: 10}[name == "is over"] {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestReplayWantsALine: what cannot be tried again says why.
func TestReplayWantsALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	lineAt(t, proof.Record{Goal: "G1", Seed: 1, Points: 10}, options{out: path})
	if err := os.WriteFile(path+"x", []byte("no line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"", path, path + ":x", path + ":2", path + ":1", path + "x:1", path + "y:1"} {
		b := &bench{options: options{replay: at, point: -1}}
		if code, err := b.replay(t.Context()); code != 2 || err == nil {
			t.Errorf("%q: code %d, %v", at, code, err)
		}
	}
}

func TestWorse(t *testing.T) {
	for _, tc := range []struct {
		verdicts []string
		code     int
	}{
		{[]string{proof.Held, proof.LeftOut}, 0},
		{[]string{proof.Short, proof.Held}, exitShort},
		{[]string{proof.Broken, proof.Short}, 1},
		{[]string{proof.Short, proof.Broken}, 1},
	} {
		code := 0
		for _, v := range tc.verdicts {
			code = worse(code, v)
		}
		if code != tc.code {
			t.Errorf("%v: %d, want %d", tc.verdicts, code, tc.code)
		}
	}
}
