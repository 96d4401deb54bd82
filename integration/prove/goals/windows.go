package goals

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/controld/controld/integration/prove/proof"
)

// What is disturbed is compared with a control, window by window, by the 99th
// percentile of each. It takes some windows for a verdict, and three quarters of
// them over the bound for a violation: then it was no outlier. Where half of
// them are the machine is too busy to tell.
const (
	leastCalls   = 50 // of a window
	leastWindows = 6
	mostTimes    = 4
	nearlyAll    = .25 // the quantile that three quarters are over
)

// timesName names the figure of how many times as long something took.
func timesName(what string) string { return what + " p99, times that of the control" }

// compare adds a window of each to a tally.
func compare(t *proof.Tally, what string, control, beside []time.Duration) {
	c, b := p99(control), p99(beside)
	t.Measure(what+" p99 of the control, ms", millis(c))
	t.Measure(what+" p99, ms", millis(b))
	t.Measure(timesName(what), float64(b)/float64(c))
}

// closeWindows violates where what was disturbed took too long.
func closeWindows(t *proof.Tally, whats ...string) {
	for _, what := range whats {
		f := t.Figures[timesName(what)]
		if times := f.Quantile(nearlyAll); f.N() >= leastWindows && times > mostTimes {
			t.ViolateAt(0, "%s: the p99 of three of four windows of %d is %.1f times that of the control or more, must be %d", what, f.N(), times, mostTimes)
		}
	}
}

// missingWindows tells where there is nothing to tell.
func missingWindows(t *proof.Tally, whats ...string) []string {
	var missing []string
	for _, what := range whats {
		f := t.Figures[timesName(what)]
		if f.N() < leastWindows {
			missing = append(missing, fmt.Sprintf("%s: %d windows, must be %d", what, f.N(), leastWindows))
		} else if times := f.Quantile(.5); times > mostTimes {
			missing = append(missing, fmt.Sprintf("%s: the p99 of half of the windows is %.1f times that of the control or more, must be %d", what, times, mostTimes))
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
	return sorted[len(sorted)*99/100]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
