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
	spec     Spec
	begun    chan struct{} // closed when the start is over, either way
	instance Instance
	backend  sandbox.Backend
	unlink   func() error
	info     sandbox.Info
	err      error
}

// ended tells whether the sandbox does not run, nor start.
func (l *life) ended() bool {
	select {
	case <-l.begun:
	default:
		return false
	}
	if l.err != nil {
		return true
	}
	select {
	case <-l.instance.Done():
		return true
	default:
		return false
	}
}

// start begins a life and closes l.begun when it runs or cannot.
func (h *Host) start(t *tenant, l *life) {
	defer close(l.begun)
	ctx, cancel := context.WithTimeout(h.starts, startTimeout)
	defer cancel()
	if l.err = h.prepare(&l.spec); l.err == nil {
		if l.instance, l.err = h.cfg.Driver.Start(ctx, l.spec); l.err == nil {
			l.err = l.meet(ctx)
		}
	}
	if l.err == nil {
		h.living.Go(func() { h.watch(l) })
		return
	}
	if !errors.Is(l.err, errNotStopped) {
		os.RemoveAll(l.spec.Run)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.sandboxes[l.spec.Sandbox] == l {
		delete(t.sandboxes, l.spec.Sandbox)
	}
}

// prepare makes the directories of a life and writes down what it is.
func (h *Host) prepare(spec *Spec) error {
	spec.ID, spec.Driver, spec.Box = uuid.NewString(), h.cfg.Driver.Name(), h.cfg.Box
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
	<-l.instance.Done()
	err := errors.Join(l.unlink(), l.instance.Stop())
	if err == nil {
		err = os.RemoveAll(l.spec.Run)
	}
	h.cfg.Ended(l.spec, l.instance.Death(), err)
}

// endSeen is how long after its link a sandbox's end may be seen: the kernel
// closes the connections of a process first, and a driver then asks why it ended.
const endSeen = 2 * time.Second

// explain says of an error that may come of the sandbox's end why it ended. Of
// what a client has said, or who it is, a sandbox has no word to say.
func (l *life) explain(err error) error {
	var e *sandbox.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	if isClients(e.Kind) && l.dialled() {
		told := *e
		told.Kind, told.Outcome = sandbox.KindInternal, sandbox.OutcomeUnknown
		return &told
	}
	if !isLost(e) {
		return err
	}
	timer := time.NewTimer(endSeen)
	defer timer.Stop()
	select {
	case <-l.instance.Done():
	case <-timer.C:
		return err
	}
	told := *e
	told.Kind, told.Reason = sandbox.KindUnavailable, l.instance.Death().Reason()
	return &told
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
