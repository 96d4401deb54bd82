package goals

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/controld/controld/integration/prove/proof"
)

// TestWindows: what is nearly always over the bound is a violation, what is so
// half of the time is not proved, and an outlier is neither.
func TestWindows(t *testing.T) {
	const slow = mostTimes*2 + 1
	for name, c := range map[string]struct {
		took          []int // in times of the slowest control, a window each
		broken, short bool
	}{
		"as fast":        {took: []int{1, 1, 1, 1, 1, 1, 1, 1}},
		"two outliers":   {took: []int{1, slow, 1, 1, slow, 1, 1, 1}},
		"half are slow":  {took: []int{1, slow, 1, slow, 1, slow, slow, slow}, short: true},
		"nearly all are": {took: []int{1, slow, slow, slow, slow, slow, slow, slow}, broken: true, short: true},
		"too few":        {took: []int{slow, slow}, short: true},
		"none":           {short: true},
	} {
		t.Run(name, func(t *testing.T) {
			var tally proof.Tally
			for _, times := range c.took {
				compare(&tally, "call", []time.Duration{time.Duration(times) * time.Millisecond},
					map[string][]time.Duration{aloneControl: {time.Millisecond / 2}, bareControl: {time.Millisecond}})
			}
			closeWindows(&tally, "call")
			if got := tally.Broken > 0; got != c.broken {
				t.Errorf("broken %v: %+v", got, tally.Violations)
			}
			if missing := missingWindows(&tally, "call"); (len(missing) > 0) != c.short {
				t.Errorf("missing %q", missing)
			}
		})
	}
}

// TestWindow: a window has enough calls, however long they take, and ends with
// the first that fails.
func TestWindow(t *testing.T) {
	took, err := window(t.Context(), 0, func(context.Context) error { return nil })
	if err != nil || len(took) != leastCalls {
		t.Errorf("%d calls, %v", len(took), err)
	}
	failed := errors.New("failed")
	if took, err = window(t.Context(), time.Hour, func(context.Context) error { return failed }); err != failed || len(took) != 0 {
		t.Errorf("%d calls, %v", len(took), err)
	}
}

// TestP99 is that of few as well as of many: never the largest alone.
func TestP99(t *testing.T) {
	for _, n := range []int{1, 10, 100, 1000} {
		all := make([]time.Duration, n)
		for i := range all {
			all[n-1-i] = time.Duration(i + 1) // the largest first
		}
		if got, want := p99(all), time.Duration(1+(n-1)*99/100); got != want {
			t.Errorf("of %d: %d, want %d", n, got, want)
		}
	}
}

// TestLateTimeouts: timeouts that are late now and then prove nothing, and one
// in four is a violation.
func TestLateTimeouts(t *testing.T) {
	const slow, lost = mostTimes * 10, 2000 // ms, where the bare way takes 1
	for _, c := range []struct {
		late int
		over float64
		want string
	}{{0, 0, proof.Held}, {5, lost, proof.Held}, {15, slow, proof.Short}, {40, slow, proof.Short}, {15, lost, proof.Short}, {40, lost, proof.Broken}} {
		r := proof.Record{Tally: proof.Tally{Tries: leastTimeouts}}
		for i := range leastTimeouts {
			over := 1.
			if i < c.late {
				over = c.over
			}
			r.State("timed out")
			r.Measure(overAsked, over)
			r.Measure(overBare, 1)
		}
		if err := (&ending{}).Close(&r.Tally); err != nil {
			t.Fatal(err)
		}
		if r.Conclude(timeouts(nil)); r.Verdict != c.want {
			t.Errorf("%d of %d late by %v ms: %s, want %s: %q", c.late, leastTimeouts, c.over, r.Verdict, c.want, r.Missing)
		}
	}
}
