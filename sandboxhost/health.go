package sandboxhost

import (
	"context"
	"sync"
	"time"
)

// Health says how it is found out that an agent does not answer any more.
type Health struct {
	// Interval is how long an agent may be silent before it is asked for a
	// sign of life, and how long that may take; 0 is never.
	Interval time.Duration
	// Misses is how many times in a row it may give none; 1 where 0.
	Misses int
}

// agent is the link to one, as far as its health goes.
type agent interface {
	// Ping returns when the agent has answered.
	Ping(ctx context.Context) error
	// Heard is when the agent said anything at all, zero where it never has.
	Heard() time.Time
}

// attended is an agent whose health is seen to.
type attended struct {
	agent
	over, ended <-chan struct{} // either ends that
	paused      func() bool     // nobody asks it then
	open        sync.WaitGroup  // questions that are given up; they end with the link
}

// attend is true when an agent does not answer any more, and false when it is no
// more to be seen to. Who says anything by itself is not asked.
func (c Health) attend(a *attended) bool {
	timer := time.NewTimer(c.Interval)
	defer timer.Stop()
	for missed := 0; missed < max(c.Misses, 1); {
		select {
		case <-a.over:
			return false
		case <-a.ended:
			return false
		case <-timer.C:
		}
		if left := c.Interval - time.Since(a.Heard()); left > 0 {
			missed = 0
			timer.Reset(left)
			continue
		}
		asked := time.Now()
		if a.paused() || c.answers(a) || a.Heard().After(asked) || a.paused() {
			missed = 0
			timer.Reset(c.Interval)
			continue
		}
		missed++
		timer.Reset(c.Interval - time.Since(asked))
	}
	return true
}

// answers asks an agent and tells whether it answers in time.
func (c Health) answers(a *attended) bool {
	ctx, cancel := context.WithTimeout(context.Background(), c.Interval)
	defer cancel()
	answer := make(chan error, 1)
	// A question that is given up waits for a word on that.
	a.open.Go(func() { answer <- a.Ping(ctx) })
	select {
	case err := <-answer:
		return err == nil
	case <-ctx.Done():
	case <-a.over:
	case <-a.ended:
	}
	return false
}

// attend sees to an instance until over is closed or it has ended, or its agent
// does not answer: then stuck is called.
func (h *Host) attend(r *running, over <-chan struct{}, paused func() bool, stuck func()) {
	a, ok := r.backend.(agent)
	if !ok || h.cfg.Health.Interval <= 0 {
		select {
		case <-over:
		case <-r.instance.Done():
		}
		return
	}
	all := attended{agent: a, over: over, ended: r.instance.Done(), paused: paused}
	defer all.open.Wait()
	if h.cfg.Health.attend(&all) {
		stuck()
	}
}

// tend ends a life whose agent does not answer any more.
func (h *Host) tend(l *life) {
	h.attend(&l.running, nil, l.paused.Load, func() {
		l.stuck.Store(true)
		if l.end() {
			h.stop(l)
		}
	})
}
