package proof

import (
	"encoding/json"
	"math"
	"testing"
)

// TestFigure: quantiles are right to a fortieth, and stay so when figures are
// merged and written down.
func TestFigure(t *testing.T) {
	var low, high Tally
	for i := 1; i <= 1000; i++ {
		to := &low
		if i > 500 {
			to = &high
		}
		to.Measure("ms", float64(i)/10)
	}
	high.Merge(&low)
	text, err := json.Marshal(high)
	if err != nil {
		t.Fatal(err)
	}
	var back Tally
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*Figure{"merged": high.Figures["ms"], "read back": back.Figures["ms"]} {
		if f.N() != 1000 || f.Max() != 100 {
			t.Errorf("%s: %d values, at most %v", name, f.N(), f.Max())
		}
		for q, want := range map[float64]float64{.5: 50, .99: 99, .999: 99.9, 1: 100} {
			if got := f.Quantile(q); math.Abs(got/want-1) > .026 {
				t.Errorf("%s: quantile %v is %v, want %v", name, q, got, want)
			}
		}
	}
	if low.Figures["ms"].N() != 500 {
		t.Error("a merge changed what was merged")
	}
}

// TestNoFigure: what was never measured has no values.
func TestNoFigure(t *testing.T) {
	var none Tally
	if f := none.Figures["ms"]; f.N() != 0 || f.Quantile(.5) != 0 {
		t.Errorf("%d values, %v", f.N(), f.Quantile(.5))
	}
}
