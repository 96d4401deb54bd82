package sandboxhost

import (
	"fmt"
	"time"

	"github.com/controld/controld/sandbox"
)

// A sandbox that ends by itself soon after its start has fallen. It gets up at
// once a few times, and then later and later.
const (
	steadyAfter = time.Minute
	freeFalls   = 5
)

// falls are those of a sandbox in a row.
type falls struct {
	n   int
	at  time.Time // of the last
	why Death
}

// pause is how long after the last one the sandbox is not started.
func (f falls) pause() time.Duration { return pauseAfter(max(f.n-freeFalls, 0)) }

// fallen are the falls up to a life that is over. What was told to end has not
// fallen.
func (l *life) fallen() falls {
	if l.err != nil {
		return l.before
	}
	l.fall.Do(func() {
		death := l.death()
		if death == (Death{}) || l.isEnding() && !death.Stuck || time.Since(l.spec.Started) >= steadyAfter {
			return
		}
		l.falls = falls{n: l.before.n + 1, at: time.Now(), why: death}
	})
	return l.falls
}

// mayFollow is nil when another life may follow this one, which may be nil, by
// now. The host's lock is held.
func (l *life) mayFollow() error {
	if l == nil || !l.over() {
		return nil
	}
	f := l.fallen()
	wait := time.Until(f.at.Add(f.pause()))
	if wait <= 0 {
		return nil
	}
	return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "start", Reason: f.why.Reason(), Outcome: sandbox.OutcomeNone, RetryAfter: wait,
		Message: fmt.Sprintf("it ended right after its start, %d times in a row: %s", f.n, f.why.Detail)}
}
