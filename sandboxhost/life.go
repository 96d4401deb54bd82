package sandboxhost

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/controld/controld/sandbox"
)

// startTimeout bounds the start of a sandbox, up to its agent's hello.
const startTimeout = 60 * time.Second

// life is one life of a sandbox: it starts, runs, has ended or could not be
// started.
type life struct {
	tenure
	running
	tier *Tier
	// after is an earlier life that must be cleared away before this one
	// starts; guarded by the host.
	after   *life
	begun   chan struct{} // closed when the start is over, either way
	cleared chan struct{} // closed when nothing is left of it but files
	err     error

	pausing sync.Mutex // held while it is paused or resumed
	paused  atomic.Bool

	stuck  atomic.Bool // its agent did not answer any more
	before falls       // of the lives before
	fall   sync.Once
	falls  falls // up to this one, once it is over
}

func (h *Host) newLife(tier *Tier, spec Spec) *life {
	l := &life{running: running{spec: spec}, tier: tier, begun: make(chan struct{}), cleared: make(chan struct{})}
	l.idleStop, l.retire = tier.IdleStop, func() { h.retire(l) }
	return l
}

// isClosed tells whether a channel is.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// over tells whether the sandbox does not run, nor start.
func (l *life) over() bool {
	return isClosed(l.begun) && (l.err != nil || isClosed(l.instance.Done()))
}

// unfinished returns what is left of l and the lives before it that were told
// to end: the next life waits for that. The host's lock is held.
func (l *life) unfinished() *life {
	for ; l != nil; l = l.after {
		if l.isEnding() && !isClosed(l.cleared) {
			return l
		}
	}
	return nil
}

// death tells why a life is over.
func (l *life) death() Death {
	if l.stuck.Load() {
		return Death{Stuck: true, Detail: "its agent does not answer"}
	}
	return l.instance.Death()
}

// reason is what calls are told of the end of a life.
func (l *life) reason() string { return l.death().Reason() }

// start begins a life and closes l.begun when it runs or cannot.
func (h *Host) start(l *life) {
	defer close(l.begun)
	ctx, cancel := context.WithTimeout(h.starts, startTimeout)
	defer cancel()
	if l.err = h.succeed(ctx, l); l.err == nil && !h.fromPool(l) {
		l.err = h.run(ctx, l.tier, &l.running)
	}
	if l.err != nil {
		close(l.cleared)
		return
	}
	l.begin(l.due())
	h.watchOver(l)
}

// succeed waits for the life before this one to be cleared away. One that could
// not be stopped is told once more.
func (h *Host) succeed(ctx context.Context, l *life) error {
	h.mu.Lock()
	before := l.after
	h.mu.Unlock()
	if before == nil {
		return nil
	}
	stuck := &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "start", Reason: sandbox.ReasonSandboxStuck,
		Outcome: sandbox.OutcomeNone, Message: "the sandbox does not end"}
	if before.instance != nil {
		if err := before.instance.Stop(); err != nil && !isClosed(before.instance.Done()) {
			stuck.Err = err
			return stuck
		}
	}
	select {
	case <-before.cleared:
	case <-ctx.Done():
		return stuck
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.after = nil
	return nil
}

// due returns when a life that runs from now on ends, zero where nothing bounds
// it.
func (l *life) due() time.Time {
	most := l.tier.MaxLife
	if most <= 0 {
		return time.Time{}
	}
	ends := l.spec.Started.Add(most)
	if l.spec.Ends.After(ends) {
		ends = l.spec.Ends
	}
	if latest := time.Now().Add(most); ends.After(latest) {
		return latest
	}
	return ends
}

// steady returns a time that was written down as one that no step of the clock
// moves from now on.
func steady(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	now := time.Now()
	return now.Add(t.Sub(now))
}

// retire ends a life whose time is up. Everybody is kept out already.
func (h *Host) retire(l *life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.living.Go(func() { h.stop(l) })
	}
}

// notEnding is the death of what does not die.
var notEnding = Death{Detail: "it was told to end, and does not"}

// stop ends a life that has begun and waits until it is cleared away.
func (h *Host) stop(l *life) error {
	err := l.instance.Stop()
	if err != nil && !isClosed(l.instance.Done()) {
		h.cfg.Ended(l.spec, notEnding, err)
		return err
	}
	<-l.cleared
	return err
}

// watchOver sees to a life that runs until it is cleared away.
func (h *Host) watchOver(l *life) {
	h.living.Go(func() { h.watch(l) })
	if l.dialled() {
		h.living.Go(func() { h.tend(l) })
	}
}

// watch waits for the end of a life and clears away what it leaves.
func (h *Host) watch(l *life) {
	defer close(l.cleared)
	<-l.instance.Done()
	l.fallen()
	l.ended()
	err := errors.Join(l.unlink(), l.instance.Stop())
	if err == nil {
		err = os.RemoveAll(l.spec.Run)
	}
	h.cfg.Ended(l.spec, l.death(), err)
}

// endSeen is how long after its link a sandbox's end may be seen: the kernel
// closes the connections of a process first, and a driver then asks why it ended.
const endSeen = time.Second

// explain says of an error that may come of the sandbox's end why it ended. Of
// what a client has said, or who it is, a sandbox has no word to say.
func (l *life) explain(err error) error {
	var e *sandbox.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	told := *e
	if isClients(e.Kind) && l.dialled() {
		told.Kind, told.Outcome = sandbox.KindInternal, sandbox.OutcomeUnknown
		return &told
	}
	told.Kind = sandbox.KindUnavailable
	switch {
	case l.isEnding() && (isLost(e) || e.Kind == sandbox.KindUnavailable && e.Reason == sandbox.ReasonDraining):
		// It was told to end; a sandbox in this process calls that a drain.
		told.Reason = sandbox.ReasonSandboxRestarted
		if l.stuck.Load() {
			told.Reason = sandbox.ReasonSandboxStuck
		}
	case isLost(e) && l.seenToEnd():
		told.Reason = l.reason()
	default:
		return err
	}
	return &told
}

// seenToEnd waits for the end of a sandbox of which the link is lost, for so
// long as that may come later.
func (l *life) seenToEnd() bool {
	if !l.dialled() {
		return isClosed(l.instance.Done())
	}
	timer := time.NewTimer(endSeen)
	defer timer.Stop()
	select {
	case <-l.instance.Done():
		return true
	case <-timer.C:
		return false
	}
}

// isClients tells whether an error of this kind speaks of the connection of the
// client that made the call.
func isClients(k sandbox.Kind) bool {
	switch k {
	case sandbox.KindUnauthenticated, sandbox.KindTokenInvalid, sandbox.KindParseError, sandbox.KindInvalidRequest,
		sandbox.KindMessageTooLarge, sandbox.KindUnknownMethod:
		return true
	}
	return false
}

// isLost tells whether an error says that nobody is at the far end.
func isLost(e *sandbox.Error) bool {
	switch e.Kind {
	case sandbox.KindConnectionLost, sandbox.KindOutcomeUnknown:
		return e.Reason != sandbox.ReasonRequestKey
	case sandbox.KindUnavailable:
		return e.Reason != sandbox.ReasonDraining && e.Reason != sandbox.ReasonSandboxStuck
	}
	return false
}
