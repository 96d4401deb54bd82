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

// attend is true when an agent does not answer any more, and false when over or
// ended is closed before. Who says anything by itself is not asked. Behind its
// return questions may be open, which end with the link.
func (c Health) attend(a agent, open *sync.WaitGroup, over, ended <-chan struct{}) bool {
	timer := time.NewTimer(c.Interval)
	defer timer.Stop()
	for missed := 0; missed < max(c.Misses, 1); {
		select {
		case <-over:
			return false
		case <-ended:
			return false
		case <-timer.C:
		}
		if left := c.Interval - time.Since(a.Heard()); left > 0 {
			missed = 0
			timer.Reset(left)
			continue
		}
		asked := time.Now()
		if c.answers(a, open, over, ended) || a.Heard().After(asked) {
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
func (c Health) answers(a agent, open *sync.WaitGroup, over, ended <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(context.Background(), c.Interval)
	defer cancel()
	answer := make(chan error, 1)
	// A question that is given up waits for a word on that.
	open.Go(func() { answer <- a.Ping(ctx) })
	select {
	case err := <-answer:
		return err == nil
	case <-ctx.Done():
	case <-over:
	case <-ended:
	}
	return false
}

// attend watches an instance until over is closed or it has ended, or does not
// answer: then it is true.
func (h *Host) attend(r *running, open *sync.WaitGroup, over <-chan struct{}) bool {
	if a, ok := r.backend.(agent); ok && h.cfg.Health.Interval > 0 {
		return h.cfg.Health.attend(a, open, over, r.instance.Done())
	}
	select {
	case <-over:
	case <-r.instance.Done():
	}
	return false
}

// tend ends a life whose agent does not answer any more.
func (h *Host) tend(l *life) {
	var open sync.WaitGroup
	defer open.Wait()
	if !h.attend(&l.running, &open, nil) {
		return
	}
	l.stuck.Store(true)
	if l.end() {
		h.stop(l)
	}
}
