package sandbox

import "time"

// The least and the most of a stream that is moved between two looks at its
// state, and how long that is to take.
const (
	leastPiece = 1 << 20
	mostPiece  = 16 << 20
	shortPiece = 25 * time.Millisecond
	longPiece  = 100 * time.Millisecond
)

// Pieces sizes the pieces of one copy. At the end of each the copy waits for
// the last bytes alone, which a fast stream feels; so pieces grow while they
// take no time, and on a slow stream stay so small that its count moves on.
// The zero value is ready; it is used by one goroutine.
type Pieces struct {
	size int64
	at   time.Time // when the last one began
}

// Next returns the size in bytes of the piece that begins now, from 1 MiB to
// 16 MiB.
func (p *Pieces) Next() int64 {
	now := time.Now()
	switch took := now.Sub(p.at); {
	case p.size == 0:
		p.size = leastPiece
	case took < shortPiece:
		p.size = min(2*p.size, mostPiece)
	case took > longPiece:
		p.size = max(p.size/2, leastPiece)
	}
	p.at = now
	return p.size
}
