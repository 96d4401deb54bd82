package gate

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limits are the bounds of a gate. Zero is no bound, but for the times, which
// take their defaults.
type Limits struct {
	// Strangers are the connections at once that have not authenticated,
	// StrangersEach those of one source.
	Strangers, StrangersEach int
	// Hellos, Handshakes and Tokens are the failures of one source in a
	// Window, of that kind, that are only answered.
	Hellos, Handshakes, Tokens int
	// Window is the time that the failures count in (1 min).
	Window time.Duration
	// Longest is how long a source is kept out at most (1 min).
	Longest time.Duration
}

// Failure is a kind of failed authentication. Each kind has a count of its
// own, so that who guesses at one door keeps nobody from another.
type Failure int

// The kinds of failure: a hello that was refused, a TLS handshake that failed,
// a token on the data port that never was.
const (
	Hello Failure = iota
	Handshake
	Token
	failures
)

// String returns the kind's name.
func (f Failure) String() string { return [...]string{"hello", "handshake", "token"}[f] }

// Counts are what a gate has seen since it was made.
type Counts struct {
	// Strangers are in now.
	Strangers int
	// Crowded were refused or put out because of Strangers and StrangersEach.
	Crowded uint64
	// Failed are the failures by kind, KeptOut what was refused because of
	// them.
	Failed, KeptOut [3]uint64
}

// Gate counts strangers and failures. Its methods may be called from any
// goroutine.
type Gate struct {
	mu      sync.Mutex
	limits  Limits
	crowd   crowd
	ledgers [failures]ledger

	crowded         atomic.Uint64
	failed, keptOut [failures]atomic.Uint64
}

// New returns an empty gate.
func New(l Limits) *Gate {
	g := &Gate{}
	g.crowd.holders = make(map[Source]*holder)
	g.SetLimits(l)
	return g
}

// SetLimits changes the bounds. Who is in stays in.
func (g *Gate) SetLimits(l Limits) {
	if l.Window <= 0 {
		l.Window = time.Minute
	}
	if l.Longest <= 0 {
		l.Longest = time.Minute
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limits = l
}

// Allowed is how many failures of a kind are only answered; zero: any number.
func (g *Gate) Allowed(f Failure) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.allowed(f)
}

func (g *Gate) allowed(f Failure) int {
	return [...]int{g.limits.Hellos, g.limits.Handshakes, g.limits.Tokens}[f]
}

// Failed counts a failure of a source.
func (g *Gate) Failed(f Failure, s Source) {
	g.failed[f].Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if most := g.allowed(f); most > 0 {
		g.ledgers[f].failed(s, time.Now(), float64(most), g.limits.Window, g.limits.Longest)
	}
}

// Wait returns how long a source is kept out because of failures of a kind;
// zero is not at all.
func (g *Gate) Wait(f Failure, s Source) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.allowed(f) <= 0 {
		return 0
	}
	left := g.ledgers[f].wait(s, time.Now())
	if left > 0 {
		g.keptOut[f].Add(1)
	}
	return left
}

// Counts returns what the gate has seen.
func (g *Gate) Counts() Counts {
	g.mu.Lock()
	c := Counts{Strangers: g.crowd.total}
	g.mu.Unlock()
	c.Crowded = g.crowded.Load()
	for f := range failures {
		c.Failed[f], c.KeptOut[f] = g.failed[f].Load(), g.keptOut[f].Load()
	}
	return c
}
