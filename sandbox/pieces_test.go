package sandbox

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pieces
		for i, c := range []struct {
			took time.Duration
			want int64 // MiB
		}{
			{0, 1}, {24 * time.Millisecond, 2}, {0, 4}, {0, 8}, {0, 16}, {0, 16}, // no more than the most
			{25 * time.Millisecond, 16}, {100 * time.Millisecond, 16}, // as long as it is to take
			{101 * time.Millisecond, 8}, {time.Second, 4}, {time.Second, 2}, {time.Second, 1}, {time.Second, 1},
		} {
			time.Sleep(c.took)
			if got := p.Next(); got != c.want<<20 {
				t.Fatalf("%d: a piece of %d bytes behind one of %v, want %d MiB", i, got, c.took, c.want)
			}
		}
	})
}
