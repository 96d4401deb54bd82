package server

import "sync"

// contents lends buffers for files on their way out. It is for those that the
// allocator would take from the heap's pages one by one; the sizes are the
// allocator's own, so that no more memory is held than was asked for.
type contents [(mostLent - leastLent) / lentStep]sync.Pool

const (
	leastLent = 32 << 10 // exclusive
	mostLent  = 128 << 10
	lentStep  = 8 << 10
)

// lend returns n bytes of whatever was in them, to be given back to the pool;
// nil stands for a size that is not lent.
func (c *contents) lend(n int64) ([]byte, *sync.Pool) {
	if n <= leastLent || n > mostLent {
		return make([]byte, n), nil
	}
	class := (n - leastLent - 1) / lentStep
	if b, ok := c[class].Get().(*[]byte); ok {
		return (*b)[:n], &c[class]
	}
	return make([]byte, n, leastLent+(class+1)*lentStep), &c[class]
}
