package goals

import (
	"context"
	"sync"

	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
)

// pool has places that are in no point's use now, each with a daemon.
type pool struct {
	ground *ground.Ground
	args   []string // of the daemons
	mu     sync.Mutex
	free   []*stand
}

// stand is a place for one point after another.
type stand struct {
	place  *ground.Place
	daemon *ground.Daemon
}

// take returns a place, a new one where none is free.
func (k *pool) take(ctx context.Context) (*stand, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.free); n > 0 {
		u := k.free[n-1]
		k.free = k.free[:n-1]
		return u, nil
	}
	place, err := k.ground.Place()
	if err != nil {
		return nil, err
	}
	u := &stand{place: place}
	u.daemon, err = place.Start(ctx, k.args...)
	return u, err
}

func (k *pool) give(u *stand) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.free = append(k.free, u)
}

// Close implements [proof.Prover].
func (k *pool) Close(*proof.Tally) error {
	for _, u := range k.free {
		u.daemon.Stop()
	}
	return nil
}
