package sandboxhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/sandbox"
)

// startTimeout bounds the start of a sandbox, up to its agent's hello.
const startTimeout = 60 * time.Second

// life is one life of a sandbox: it starts, runs, has ended or could not be
// started.
type life struct {
	tenure
	spec Spec
	// after is an earlier life that must be cleared away before this one
	// starts; guarded by the host.
	after    *life
	begun    chan struct{} // closed when the start is over, either way
	cleared  chan struct{} // closed when nothing is left of it but files
	instance Instance
	backend  sandbox.Backend
	unlink   func() error
	info     sandbox.Info
	err      error
}

func (h *Host) newLife(spec Spec) *life {
	l := &life{spec: spec, begun: make(chan struct{}), cleared: make(chan struct{})}
	l.idleStop, l.retire = h.cfg.IdleStop, func() { h.retire(l) }
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

// start begins a life and closes l.begun when it runs or cannot.
func (h *Host) start(l *life) {
	defer close(l.begun)
	ctx, cancel := context.WithTimeout(h.starts, startTimeout)
	defer cancel()
	if l.err = h.succeed(ctx, l); l.err == nil {
		l.err = h.launch(ctx, l)
	}
	if l.err != nil {
		close(l.cleared)
		return
	}
	l.begin(h.endOf(l.spec))
	h.living.Go(func() { h.watch(l) })
}

// launch starts the instance of a life.
func (h *Host) launch(ctx context.Context, l *life) error {
	err := h.prepare(&l.spec)
	if err == nil {
		if l.instance, err = h.cfg.Driver.Start(ctx, l.spec); err == nil {
			err = l.meet(ctx)
		}
	}
	if err != nil && !errors.Is(err, errNotStopped) && l.spec.Run != "" {
		os.RemoveAll(l.spec.Run)
	}
	return err
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

// endOf returns when a life of this spec that runs from now on ends, zero where
// nothing bounds it.
func (h *Host) endOf(spec Spec) time.Time {
	most := h.cfg.MaxLife
	if most <= 0 {
		return time.Time{}
	}
	ends := spec.Started.Add(most)
	if spec.Ends.After(ends) {
		ends = spec.Ends
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

// stop ends a life that has begun and waits until it is cleared away.
func (h *Host) stop(l *life) error {
	err := l.instance.Stop()
	if err != nil && !isClosed(l.instance.Done()) {
		h.cfg.Ended(l.spec, Death{Detail: "it was told to end, and does not"}, err)
		return err
	}
	<-l.cleared
	return err
}

// prepare makes the directories of a life and writes down what it is.
func (h *Host) prepare(spec *Spec) error {
	spec.ID, spec.Driver, spec.Box, spec.Started = uuid.NewString(), h.cfg.Driver.Name(), h.cfg.Box, time.Now()
	var err error
	if spec.Secret, _, err = NewSecret(Grant{Tenant: spec.Tenant, Sandbox: spec.Sandbox}); err != nil {
		return sandbox.AsError("start", "", err)
	}
	if spec.IDs, err = h.ids.get(spec.Tenant, spec.Sandbox); err != nil {
		return err
	}
	h.place(spec)
	if err := os.MkdirAll(filepath.Dir(spec.Dir), 0o700); err != nil {
		return sandbox.AsError("start", "", err)
	}
	if err := os.Mkdir(spec.Dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return sandbox.AsError("start", "", err)
	}
	if err := os.Mkdir(spec.Run, 0o700); err != nil {
		return sandbox.AsError("start", "", err)
	}
	if err := writeSpec(*spec); err != nil {
		return sandbox.AsError("start", "", err)
	}
	return nil
}

// place fills in what follows from the host alone.
func (h *Host) place(spec *Spec) {
	spec.Limits = h.cfg.Limits
	spec.Journal = filepath.Join(h.cfg.StateDir, "journal")
	spec.Dir = h.dir(spec.Tenant, spec.Sandbox)
	spec.State = h.state(spec.Tenant, spec.Sandbox)
	spec.Run = filepath.Join(h.cfg.StateDir, runDir, spec.ID)
}

// errNotStopped marks the error of a start whose instance could not be stopped:
// it stays written down.
var errNotStopped = errors.New("the instance could not be stopped")

// meet says hello to the agent. Where that fails the instance is stopped.
func (l *life) meet(ctx context.Context) error {
	var err error
	if l.backend, l.unlink, err = openLink(l.spec, l.instance); err == nil {
		if l.info, err = l.hello(ctx); err == nil {
			return nil
		}
		l.unlink()
	}
	select {
	case <-l.instance.Done():
		err = l.stillborn()
	default:
		if ctx.Err() != nil {
			err = &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "start", Reason: sandbox.ReasonSandboxStuck,
				Outcome: sandbox.OutcomeNone, Message: "the agent did not say hello in time"}
		} else if err != nil {
			// Whatever kind it calls it: this is no word on who asked for the sandbox.
			err = &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Message: "the agent does not say hello: " + err.Error(), Err: err}
		}
	}
	if stop := l.instance.Stop(); stop != nil {
		return errors.Join(err, errNotStopped, stop)
	}
	return err
}

// hello asks for the agent's Info, until the instance ends.
func (l *life) hello(ctx context.Context) (sandbox.Info, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	met := make(chan struct{})
	defer func() { <-met }()
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer close(met)
		select {
		case <-l.instance.Done():
			cancel()
		case <-over:
		}
	}()
	for {
		info, err := l.backend.Info(ctx)
		kind := sandbox.KindOf(err)
		if ctx.Err() != nil || kind != sandbox.KindUnavailable && kind != sandbox.KindConnectionLost {
			return info, err
		}
	}
}

// stillborn is the error of an instance that ended before its hello.
func (l *life) stillborn() error {
	d := l.instance.Death()
	return &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Reason: d.Reason(),
		Message: fmt.Sprintf("the sandbox ended as it started: %s", d.Detail)}
}

// watch waits for the end of a life and clears away what it leaves.
func (h *Host) watch(l *life) {
	defer close(l.cleared)
	<-l.instance.Done()
	l.ended()
	err := errors.Join(l.unlink(), l.instance.Stop())
	if err == nil {
		err = os.RemoveAll(l.spec.Run)
	}
	h.cfg.Ended(l.spec, l.instance.Death(), err)
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
	case isLost(e) && l.seenToEnd():
		told.Reason = l.instance.Death().Reason()
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

// dialled tells whether what the backend says comes from an agent.
func (l *life) dialled() bool { return l.instance.Link().Backend == nil }

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
