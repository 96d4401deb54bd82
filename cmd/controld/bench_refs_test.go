package main

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// TestReferences: each one that is installed has ratios, and all can be
// written as JSON, however little was moved.
func TestReferences(t *testing.T) {
	r := benchReport{Size: 1 << 20, Streams: 1, Exec: latency{P50: time.Millisecond}, Up: rate{1 << 20, 0.001}, Down: rate{1 << 20, 0.001}}
	refs := references(t.Context(), r)
	if _, err := json.Marshal(refs); err != nil || len(refs) == 0 {
		t.Fatalf("%+v, %v", refs, err)
	}
	for _, ref := range refs {
		for what, ratio := range ref.Ratios {
			if ratio <= 0 || math.IsInf(ratio, 0) || math.IsNaN(ratio) {
				t.Errorf("%s: %s %v", ref.Name, what, ratio)
			}
		}
		if ref.String() == "" {
			t.Error(ref.Name)
		}
	}
}
