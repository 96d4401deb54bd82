package proof

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// hang is how long one point may take: far more than any needs.
const hang = 2 * time.Minute

// Run is one pass over the points of a goal.
type Run struct {
	Goal Goal
	Seed uint64
	// From is the first point and To the one behind the last.
	From, To int
	// Tally is what an earlier run has counted up to From.
	Tally Tally
	// Saved, where not nil, is told now and then what is counted so far: all
	// points before done.
	Saved func(done int, t Tally)
}

// saves is how often Saved is called.
const saves = 5 * time.Second

// Do tries the points and returns the tally. An error means that not all were
// tried, of which no more can be said.
func (r Run) Do(ctx context.Context) (Tally, error) {
	prover, err := r.Goal.Open(ctx)
	if err != nil {
		return Tally{}, fmt.Errorf("%s: %w", r.Goal.ID, err)
	}
	pass := &pass{Run: r, prover: prover, next: r.From, done: r.From, early: map[int]*Tally{}, saved: time.Now()}
	pass.total = r.Tally.clone()
	var lanes sync.WaitGroup
	for range max(1, r.Goal.Lanes) {
		lanes.Go(func() { pass.lane(ctx) })
	}
	lanes.Wait()
	err = errors.Join(pass.err, prover.Close(&pass.total))
	if err != nil {
		err = fmt.Errorf("%s: %w", r.Goal.ID, err)
	}
	return pass.total, err
}

// pass is a run that is going on.
type pass struct {
	Run
	prover Prover

	mu    sync.Mutex
	next  int // to be tried
	done  int // all before it are in total
	total Tally
	early map[int]*Tally // of points behind done
	saved time.Time
	err   error
}

// lane tries one point after another until none is left.
func (p *pass) lane(ctx context.Context) {
	for {
		n, ok := p.take(ctx)
		if !ok {
			return
		}
		point := NewPoint(p.Goal.ID, p.Seed, n)
		err := p.try(ctx, point)
		p.settle(point, err)
	}
}

func (p *pass) take(ctx context.Context) (n int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = ctx.Err()
	}
	if p.err != nil || p.next >= p.To {
		return 0, false
	}
	p.next++
	return p.next - 1, true
}

// try tries a point, and takes one that does not end for a violation.
func (p *pass) try(ctx context.Context, point *Point) error {
	limited, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	err := p.prover.Try(limited, point)
	if ctx.Err() == nil && limited.Err() != nil {
		point.Violate("not over after %s: %v", hang, err)
		return nil
	}
	if err != nil {
		err = fmt.Errorf("point %d: %w", point.N, err)
	}
	return err
}

// settle counts a point when all before it are counted.
func (p *pass) settle(point *Point, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = errors.Join(p.err, err)
		return
	}
	p.early[point.N] = &point.Tally
	for t := p.early[p.done]; t != nil; t = p.early[p.done] {
		p.total.Merge(t)
		delete(p.early, p.done)
		p.done++
	}
	if p.Saved != nil && time.Since(p.saved) > saves {
		p.Saved(p.done, p.total.clone())
		p.saved = time.Now()
	}
}
