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

// running is an instance and the link to its agent.
type running struct {
	spec     Spec
	instance Instance
	backend  sandbox.Backend
	unlink   func() error
	info     sandbox.Info
}

// run starts the instance of a tier. Where that fails nothing is left of it but
// the directory of a sandbox, or it stays written down, for another life of the
// host.
func (h *Host) run(ctx context.Context, tier *Tier, r *running) error {
	err := h.prepare(tier, &r.spec)
	if err == nil {
		if r.instance, err = tier.Driver.Start(ctx, r.spec); err == nil {
			err = r.meet(ctx)
		}
	}
	if err != nil && !errors.Is(err, errNotStopped) && r.spec.Run != "" {
		os.RemoveAll(r.spec.Run)
	}
	return err
}

// prepare makes the directories of an instance and writes down what it is.
func (h *Host) prepare(tier *Tier, spec *Spec) error {
	spec.ID, spec.Tier, spec.Driver, spec.Box, spec.Started = uuid.NewString(), tier.Name, tier.Driver.Name(), tier.Box, time.Now()
	var err error
	if spec.Secret, _, err = NewSecret(Grant{Tenant: "agent", Sandbox: AnySandbox}); err != nil {
		return sandbox.AsError("start", "", err)
	}
	if spec.IDs, err = h.ids.get(spec.owner()); err != nil {
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
	spec.Dir, spec.State = h.dir(spec.Tenant, spec.Sandbox), h.state(spec.Tenant, spec.Sandbox)
	if spec.isSpare() {
		spec.Dir, spec.State = h.spareDir(spec.ID), h.state(spareTenant, spec.ID)
	}
	spec.Run = filepath.Join(h.cfg.StateDir, runDir, spec.ID)
}

// errNotStopped marks the error of a start whose instance could not be stopped:
// it stays written down.
var errNotStopped = errors.New("the instance could not be stopped")

// meet says hello to the agent. Where that fails the instance is stopped.
func (r *running) meet(ctx context.Context) error {
	var err error
	if r.backend, r.unlink, err = openLink(r.spec, r.instance); err == nil {
		if r.info, err = r.hello(ctx); err == nil {
			return nil
		}
		r.unlink()
	}
	select {
	case <-r.instance.Done():
		err = r.stillborn()
	default:
		if ctx.Err() != nil {
			err = &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "start", Reason: sandbox.ReasonSandboxStuck,
				Outcome: sandbox.OutcomeNone, Message: "the agent did not say hello in time"}
		} else if err != nil {
			// Whatever kind it calls it: this is no word on who asked for the sandbox.
			err = &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Message: "the agent does not say hello: " + err.Error(), Err: err}
		}
	}
	if stop := r.instance.Stop(); stop != nil {
		return errors.Join(err, errNotStopped, stop)
	}
	return err
}

// hello asks for the agent's Info, until the instance ends.
func (r *running) hello(ctx context.Context) (sandbox.Info, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	met := make(chan struct{})
	defer func() { <-met }()
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer close(met)
		select {
		case <-r.instance.Done():
			cancel()
		case <-over:
		}
	}()
	for {
		info, err := r.backend.Info(ctx)
		kind := sandbox.KindOf(err)
		if ctx.Err() != nil || kind != sandbox.KindUnavailable && kind != sandbox.KindConnectionLost {
			return info, err
		}
	}
}

// stillborn is the error of an instance that ended before its hello.
func (r *running) stillborn() error {
	d := r.instance.Death()
	return &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Reason: d.Reason(),
		Message: fmt.Sprintf("the sandbox ended as it started: %s", d.Detail)}
}

// dialled tells whether what the backend says comes from an agent.
func (r *running) dialled() bool { return r.instance.Link().Backend == nil }
