package goals

import (
	"context"
	"sync"

	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
)

// pool has things for one point after another, of which each has one of its
// own.
type pool[T any] struct {
	open func(context.Context) (T, error)
	end  func(T)
	mu   sync.Mutex
	free []T // in no point's use now
}

// take returns one of them, a new one where none is free.
func (k *pool[T]) take(ctx context.Context) (T, error) {
	k.mu.Lock()
	if n := len(k.free); n > 0 {
		u := k.free[n-1]
		k.free = k.free[:n-1]
		k.mu.Unlock()
		return u, nil
	}
	k.mu.Unlock()
	return k.open(ctx)
}

func (k *pool[T]) give(u T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = append(k.free, u)
}

// Close implements [proof.Prover].
func (k *pool[T]) Close(*proof.Tally) error {
	for _, u := range k.free {
		k.end(u)
	}
	return nil
}

// stand is a place with a daemon.
type stand struct {
	place  *ground.Place
	daemon *ground.Daemon
}

// stands returns a pool of stands.
func stands(g *ground.Ground) *pool[*stand] {
	return &pool[*stand]{
		open: func(ctx context.Context) (*stand, error) {
			place, err := g.Place()
			if err != nil {
				return nil, err
			}
			u := &stand{place: place}
			u.daemon, err = place.Start(ctx)
			return u, err
		},
		end: func(u *stand) { u.daemon.Stop() },
	}
}
