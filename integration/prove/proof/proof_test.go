package proof

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
)

// drawn is a prover that counts what each point draws, and takes odd draws
// for violations.
type drawn struct {
	stop   int // an error at this point
	tried  atomic.Int64
	closed bool
}

func (d *drawn) Try(_ context.Context, p *Point) error {
	d.tried.Add(1)
	if p.N == d.stop {
		return errors.New("stop")
	}
	n := p.Rand.IntN(6)
	p.State(fmt.Sprint(n))
	if n%2 == 1 {
		p.Violate("drew %d", n)
	}
	return nil
}

func (d *drawn) Close(t *Tally) error {
	d.closed = true
	t.Fails("closed", 1)
	return nil
}

// goalOf is a goal whose prover is d.
func goalOf(d *drawn) Goal {
	return Goal{ID: "G", Lanes: 4, Open: func(context.Context) (Prover, error) { return d, nil }}
}

// TestPointsFollowFromTheSeed: the same run gives the same tally, a point alone
// what it gave in the run, another seed another tally.
func TestPointsFollowFromTheSeed(t *testing.T) {
	do := func(seed uint64, from, to int) Tally {
		t.Helper()
		d := &drawn{stop: -1}
		tally, err := Run{Goal: goalOf(d), Seed: seed, From: from, To: to}.Do(t.Context())
		if err != nil || !d.closed || int(d.tried.Load()) != to-from {
			t.Fatalf("tried %d, closed %v, %v", d.tried.Load(), d.closed, err)
		}
		return tally
	}
	whole := do(1, 0, 100)
	if again := do(1, 0, 100); !reflect.DeepEqual(whole, again) {
		t.Errorf("%+v, and again %+v", whole, again)
	}
	if other := do(2, 0, 100); reflect.DeepEqual(whole, other) {
		t.Error("another seed changes nothing")
	}
	v := whole.Violations[0]
	if alone := do(1, v.Point, v.Point+1); len(alone.Violations) != 1 || alone.Violations[0] != v {
		t.Errorf("alone %+v, in the run %+v", alone, v)
	}
	if whole.Broken <= kept || len(whole.Violations) != kept {
		t.Errorf("%d violations, %d told", whole.Broken, len(whole.Violations))
	}
}

// TestRunGoesOn: a run in two parts counts what one run does.
func TestRunGoesOn(t *testing.T) {
	d := &drawn{stop: -1}
	whole, err := Run{Goal: goalOf(d), Seed: 1, To: 60}.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := Run{Goal: goalOf(d), Seed: 1, To: 25}.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	both, err := Run{Goal: goalOf(d), Seed: 1, From: 25, To: 60, Tally: first}.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	whole.Control, both.Control = nil, nil // Close was counted twice
	if !reflect.DeepEqual(whole, both) {
		t.Errorf("%+v, in two parts %+v", whole, both)
	}
}

// TestErrorsEndTheRun: what a prover cannot do is no violation.
func TestErrorsEndTheRun(t *testing.T) {
	d := &drawn{stop: 3}
	tally, err := Run{Goal: goalOf(d), Seed: 1, To: 1 << 40}.Do(t.Context())
	if err == nil || !d.closed || tally.Tries > 3 {
		t.Errorf("tried %d, counted %d, closed %v, %v", d.tried.Load(), tally.Tries, d.closed, err)
	}
}

// TestCuts counts by tenths.
func TestCuts(t *testing.T) {
	var tally Tally
	for _, at := range []int64{-1, 0, 9, 10, 99, 100} {
		tally.Cut(at, 100)
	}
	if want := [10]int{0: 2, 1: 1, 9: 1}; tally.Offsets != want || tally.Outside != 2 {
		t.Errorf("%v, %d outside", tally.Offsets, tally.Outside)
	}
	if got := tally.Inside(); got < 0.66 || got > 0.67 {
		t.Errorf("%f inside", got)
	}
}

// TestVerdicts: a violation is worse than what is missing.
func TestVerdicts(t *testing.T) {
	for want, r := range map[string]Record{
		Held:   {Tally: Tally{Tries: 2}},
		Short:  {Tally: Tally{Tries: 1}},
		Broken: {Tally: Tally{Tries: 1, Broken: 1}},
	} {
		r.Conclude(Goal{Judge: func(t *Tally) []string {
			if t.Tries < 2 {
				return []string{"too few"}
			}
			return nil
		}})
		if r.Verdict != want {
			t.Errorf("%s, want %s", r.Verdict, want)
		}
	}
}

// TestFile: a record takes the place of an earlier one of the same run, and of
// no other; a new file forgets what was there.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f := NewFile(path)
	one, two := Record{Goal: "G1", Seed: 1, Points: 5, Verdict: Running, Done: 2}, Record{Goal: "G2", Seed: 1, Points: 5, Verdict: Held}
	for _, r := range []Record{one, two, {Goal: "G1", Seed: 1, Points: 5, Verdict: Held, Done: 5}} {
		if err := f.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	again, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, err := again.Line(1)
	if err != nil || first.Goal != "G1" || first.Done != 5 {
		t.Errorf("%+v, %v", first, err)
	}
	if _, err := again.Line(3); err == nil {
		t.Error("there is a third line")
	}
	if r, ok := again.Earlier(Record{Goal: "G2", Seed: 1, Points: 5}); !ok || r.Verdict != Held {
		t.Errorf("%+v, %v", r, ok)
	}
	if _, ok := again.Earlier(Record{Goal: "G2", Seed: 2, Points: 5}); ok {
		t.Error("another seed is the same run")
	}
	if err := NewFile(path).Put(two); err != nil {
		t.Fatal(err)
	}
	if again, err = OpenFile(path); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Line(2); err == nil {
		t.Error("a new file holds the old lines")
	}
}
