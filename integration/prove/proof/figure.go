package proof

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Figure is how a quantity was distributed, in buckets of which each is a
// twentieth wider than the one before: those of many points add up, in a run
// that goes on as well.
type Figure struct {
	buckets map[int]int
	max     float64
}

// width is how much larger a bucket is than the one before it, and least what
// counts as nothing.
const (
	width = 1.05
	least = 1e-9
)

// add counts a value.
func (f *Figure) add(v float64) {
	if f.buckets == nil {
		f.buckets = make(map[int]int)
	}
	f.buckets[int(math.Floor(math.Log(max(v, least))/math.Log(width)))]++
	f.max = max(f.max, v)
}

// N is how many values were counted.
func (f *Figure) N() int {
	n := 0
	if f != nil {
		for _, count := range f.buckets {
			n += count
		}
	}
	return n
}

// Max is the largest value, 0 where there is none.
func (f *Figure) Max() float64 {
	if f == nil {
		return 0
	}
	return f.max
}

// Quantile returns the value below which a share q of the others lies, to a
// fortieth; 0 where there are none.
func (f *Figure) Quantile(q float64) float64 {
	rank := int(q * float64(f.N()))
	if f == nil {
		return 0
	}
	for _, b := range slices.Sorted(maps.Keys(f.buckets)) {
		if rank -= f.buckets[b]; rank < 0 {
			return min(math.Pow(width, float64(b)+.5), f.max)
		}
	}
	return f.max
}

// merge returns a figure of the values of both.
func (f *Figure) merge(o *Figure) *Figure {
	sum := &Figure{buckets: make(map[int]int)}
	for _, part := range []*Figure{f, o} {
		if part == nil {
			continue
		}
		for b, n := range part.buckets {
			sum.buckets[b] += n
		}
		sum.max = max(sum.max, part.max)
	}
	return sum
}

// told is a figure in a line; what is read back is Buckets and Max.
type told struct {
	N       int         `json:"n"`
	P50     json.Number `json:"p50"`
	P99     json.Number `json:"p99"`
	P999    json.Number `json:"p99.9"`
	Max     json.Number `json:"max"`
	Buckets map[int]int `json:"buckets"`
}

// MarshalJSON implements json.Marshaler.
func (f *Figure) MarshalJSON() ([]byte, error) {
	digits := func(v float64) json.Number { return json.Number(fmt.Sprintf("%.4g", v)) }
	return json.Marshal(told{f.N(), digits(f.Quantile(.5)), digits(f.Quantile(.99)), digits(f.Quantile(.999)), digits(f.max), f.buckets})
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Figure) UnmarshalJSON(text []byte) error {
	var t told
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	most, err := t.Max.Float64()
	*f = Figure{t.Buckets, most}
	return err
}
