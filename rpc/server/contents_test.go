package server

import "testing"

// TestLendSizes: a buffer is no larger than the allocator would have made it.
func TestLendSizes(t *testing.T) {
	var c contents
	for n := int64(1); n < mostLent+3*lentStep; n += 511 {
		for range 2 { // the second may be one that was given back
			b, home := c.lend(n)
			if int64(len(b)) != n || home != nil && int64(cap(b)) >= n+lentStep {
				t.Fatalf("%d bytes for %d, of %d", len(b), n, cap(b))
			}
			if (home != nil) != (n > leastLent && n <= mostLent) {
				t.Fatalf("%d bytes: lent %v", n, home != nil)
			}
			if home != nil {
				home.Put(&b)
			}
		}
	}
}
