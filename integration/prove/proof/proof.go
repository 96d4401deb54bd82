// Package proof runs goals: promises of the project that are tried at many
// points, each of which follows from a seed and a number and can be repeated
// alone. What was seen is counted in a Tally and told in one Record a goal.
//
// What does not belong here: what the goals try (package goals).
package proof

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
)

// Goal is a promise and how it is tried.
type Goal struct {
	ID string
	// Promise says in words what must hold.
	Promise string
	// Quick is how many points CI tries, Lanes how many run at once.
	Quick, Lanes int
	// Mutant, where not empty, breaks the project so that this goal must show
	// it: of Floor points in a thousand, or more, it finds a violation.
	Mutant string
	Floor  int
	// Open makes ready. The caller closes the prover.
	Open func(ctx context.Context) (Prover, error)
	// Judge tells what is missing for the tally to prove anything: a fault
	// that never struck, a control that never failed. Nil misses nothing.
	Judge func(t *Tally) []string
}

// Prover tries the points of one goal.
type Prover interface {
	// Try tries one point, which it may learn everything about from p alone.
	// Points run side by side. An error is one of the prover, or of the
	// machine, and ends the run; what the project did wrong is p.Violate's.
	Try(ctx context.Context, p *Point) error
	// Close ends what Open and Try began, and adds to the tally what only
	// shows at the end.
	Close(t *Tally) error
}

// Point is one try. What is counted on it reaches the tally of its goal.
type Point struct {
	// N is its number, from 0.
	N int
	// Rand yields the same for the same goal, seed and number.
	Rand *rand.Rand
	Tally
}

// NewPoint returns the point n of a goal under a seed.
func NewPoint(goal string, seed uint64, n int) *Point {
	h := fnv.New64a()
	h.Write([]byte(goal))
	p := &Point{N: n, Rand: rand.New(rand.NewPCG(seed, h.Sum64()+uint64(n)))}
	p.Tries = 1
	return p
}

// Violate records that the promise was broken at this point.
func (p *Point) Violate(format string, args ...any) { p.violate(p.N, format, args...) }
