// Package fair shares what a machine can do at once among tenants: a [Gate]
// hands out turns, and a tenant that waits gets its next one however many
// others are waited for by its neighbours.
//
// What belongs here is the order of turns alone. What a turn is for, how long
// it may take and whose it is, its callers know; how much a tenant may have in
// all is a quota and lives elsewhere.
package fair

import (
	"context"
	"sync"
	"time"
)

// Options say how many turns a [Gate] hands out.
type Options struct {
	// Alone is how many turns one tenant may hold while no other asks for
	// any; zero means no bound.
	Alone int
	// Shared is how many turns are out at once while several tenants ask. A
	// tenant that holds none gets one all the same, so that what a neighbour
	// took while it was alone holds nobody up.
	Shared int
	// Linger is how long behind its last turn a tenant still counts as one
	// that asks.
	Linger time.Duration
}

// Gate hands out turns. Make it with [New]; it may be used by many goroutines
// at once.
type Gate struct {
	opts Options

	mu     sync.Mutex
	out    int               // turns
	shares map[string]*share // of tenants that hold a turn or wait for one
	clock  uint64            // counts the turns handed out
	// The two tenants that asked last, and when.
	last, before visit
}

type visit struct {
	tenant string
	at     time.Time
}

// share is one tenant's.
type share struct {
	out     int
	waiting []chan struct{} // in order of arrival
	served  uint64          // clock of the last turn
}

// New returns a gate. A nil *Gate lets everybody through.
func New(o Options) *Gate {
	o.Shared = max(o.Shared, 1)
	return &Gate{opts: o, shares: make(map[string]*share)}
}

// Contended tells whether another tenant than this one asked for a turn a
// moment ago, and notes that this one asks.
func (g *Gate) Contended(tenant string) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.contended(tenant, time.Now())
}

func (g *Gate) contended(tenant string, now time.Time) bool {
	if g.last.tenant != tenant {
		g.before = g.last
	}
	g.last = visit{tenant, now}
	return !g.before.at.IsZero() && now.Sub(g.before.at) < g.opts.Linger
}

// Enter waits for a turn and returns how to end it, which must be called once;
// more often does no harm. When ctx ends first the error is its cause.
func (g *Gate) Enter(ctx context.Context, tenant string) (leave func(), err error) {
	if g == nil {
		return func() {}, nil
	}
	g.mu.Lock()
	s := g.shares[tenant]
	if s == nil {
		s = &share{}
		g.shares[tenant] = s
	}
	if crowded := g.contended(tenant, time.Now()); len(s.waiting) == 0 && g.admits(s, crowded) {
		g.hand(s)
		g.mu.Unlock()
		return g.leaver(tenant, s), nil
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	g.mu.Unlock()
	select {
	case <-turn:
		return g.leaver(tenant, s), nil
	case <-ctx.Done():
		g.giveUp(tenant, s, turn)
		return nil, context.Cause(ctx)
	}
}

// admits tells whether a tenant may have one more turn now.
func (g *Gate) admits(s *share, crowded bool) bool {
	if !crowded {
		return g.opts.Alone == 0 || g.out < g.opts.Alone
	}
	return s.out == 0 || g.out < g.opts.Shared
}

// hand gives a turn out. The caller holds the lock.
func (g *Gate) hand(s *share) {
	g.out++
	g.clock++
	s.out++
	s.served = g.clock
}

func (g *Gate) leaver(tenant string, s *share) func() {
	var once sync.Once
	return func() { once.Do(func() { g.leave(tenant, s) }) }
}

func (g *Gate) leave(tenant string, s *share) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out--
	s.out--
	g.serve()
	g.drop(tenant, s)
}

// giveUp takes back a wait, or the turn that came at the same moment.
func (g *Gate) giveUp(tenant string, s *share, turn chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.drop(tenant, s)
	for i, w := range s.waiting {
		if w == turn {
			s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
			return
		}
	}
	g.out--
	s.out--
	g.serve()
}

func (g *Gate) drop(tenant string, s *share) {
	if s.out == 0 && len(s.waiting) == 0 {
		delete(g.shares, tenant)
	}
}

// serve hands free turns to those that wait: first to who holds the fewest,
// then to who had its last one longest ago.
func (g *Gate) serve() {
	for {
		tenant, next := g.next()
		if next == nil || !g.admits(next, g.crowded(tenant)) {
			return
		}
		turn := next.waiting[0]
		if next.waiting = next.waiting[1:]; len(next.waiting) == 0 {
			next.waiting = nil
		}
		g.hand(next)
		close(turn)
	}
}

func (g *Gate) next() (tenant string, next *share) {
	for name, s := range g.shares {
		if len(s.waiting) == 0 {
			continue
		}
		if next == nil || s.out < next.out || s.out == next.out && s.served < next.served {
			tenant, next = name, s
		}
	}
	return tenant, next
}

// crowded tells whether another tenant holds a turn, waits or asked a moment
// ago.
func (g *Gate) crowded(tenant string) bool {
	if len(g.shares) > 1 {
		return true
	}
	other := g.last
	if other.tenant == tenant {
		other = g.before
	}
	return !other.at.IsZero() && time.Since(other.at) < g.opts.Linger
}
