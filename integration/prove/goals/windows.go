package goals

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/controld/controld/integration/prove/proof"
)

// What is disturbed is compared with controls, window by window, by the 99th
// percentile of each. It takes some windows for a verdict, and three quarters of
// them over the bound for a violation: then it was no outlier. Where half of
// them are the machine is too busy to tell.
const (
	leastCalls   = 6 // of a window
	leastWindows = 6
	mostTimes    = 4
	nearlyAll    = .25 // the quantile that three quarters are over
)

// The controls: the same without trouble, and a process that does the same with
// the same trouble, by the plainest means.
const (
	aloneControl = "alone"
	bareControl  = "bare"
)

// p99Of names a figure, of a control where that is not empty.
func p99Of(what, control string) string {
	if control != "" {
		control = " " + control
	}
	return what + control + " p99, ms"
}

// compare adds a window of each to a tally.
func compare(t *proof.Tally, what string, disturbed []time.Duration, controls map[string][]time.Duration) {
	t.Measure(p99Of(what, ""), millis(p99(disturbed)))
	for name, took := range controls {
		t.Measure(p99Of(what, name), millis(p99(took)))
	}
}

// bound is what a window may take: some times the slowest of the controls.
func bound(t *proof.Tally, what string) float64 {
	slowest := 0.
	for _, name := range []string{aloneControl, bareControl} {
		slowest = max(slowest, t.Figures[p99Of(what, name)].Max())
	}
	return mostTimes * slowest
}

// closeWindows violates where what was disturbed took too long.
func closeWindows(t *proof.Tally, whats ...string) {
	for _, what := range whats {
		f, most := t.Figures[p99Of(what, "")], bound(t, what)
		if took := f.Quantile(nearlyAll); f.N() >= leastWindows && took > most {
			t.ViolateAt(0, "%s: in three of four windows of %d the p99 is %.3g ms or more, must be %.3g", what, f.N(), took, most)
		}
	}
}

// missingWindows tells where there is nothing to tell.
func missingWindows(t *proof.Tally, whats ...string) []string {
	var missing []string
	for _, what := range whats {
		f, most := t.Figures[p99Of(what, "")], bound(t, what)
		if f.N() < leastWindows {
			missing = append(missing, fmt.Sprintf("%s: %d windows, must be %d", what, f.N(), leastWindows))
		} else if took := f.Quantile(.5); took > most {
			missing = append(missing, fmt.Sprintf("%s: in half of the windows the p99 is %.3g ms or more, must be %.3g", what, took, most))
		}
	}
	return missing
}

// window repeats a call for a while, and until there are enough calls for a
// window, and times each.
func window(ctx context.Context, lasts time.Duration, call func(context.Context) error) ([]time.Duration, error) {
	var took []time.Duration
	now := time.Now()
	for end := now.Add(lasts); now.Before(end) || len(took) < leastCalls; {
		if err := call(ctx); err != nil {
			return took, err
		}
		then := time.Now()
		took = append(took, then.Sub(now))
		now = then
	}
	return took, nil
}

func p99(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)*99/100]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
