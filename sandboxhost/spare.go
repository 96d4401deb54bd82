package sandboxhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// spareName is what an instance that is nobody's yet is called inside: its
// tenant is none.
const spareName = "sandbox"

// isSpare tells whether an instance is nobody's yet.
func (s Spec) isSpare() bool { return s.Tenant == "" }

// owner is to whom users are given: a sandbox, or an instance that is nobody's.
func (s Spec) owner() (tenant, name string) {
	if s.isSpare() {
		return "", s.ID
	}
	return s.Tenant, s.Sandbox
}

// poolDir is where instances that are nobody's have their sandbox's directory,
// below the state directory.
const poolDir = "pool"

// spareTenant stands for a tenant where their agents have theirs. No tenant is
// called so.
const spareTenant = ".pool"

func (h *Host) spareDir(id string) string { return filepath.Join(h.cfg.StateDir, poolDir, id) }

// newSpare starts an instance of a tier for nobody.
func (h *Host) newSpare(ctx context.Context, tier *Tier) (*running, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	r := &running{spec: Spec{Sandbox: spareName}}
	if err := h.run(ctx, tier, r); err != nil {
		if !errors.Is(err, errNotStopped) {
			err = errors.Join(err, h.forget(r.spec))
		}
		return nil, err
	}
	return r, nil
}

// endSpare ends one that is still nobody's.
func (h *Host) endSpare(r *running) error {
	return errors.Join(r.unlink(), h.end(r.spec, r.instance))
}

// end ends an instance that nobody has used.
func (h *Host) end(spec Spec, i Instance) error {
	if err := i.Stop(); err != nil {
		return err
	}
	return h.forget(spec)
}

// forget removes what is left of an instance that has ended, but for what is a
// sandbox's by now. While it was nobody's it had no file: its users can be
// another's.
func (h *Host) forget(spec Spec) error {
	dir := h.spareDir(spec.ID)
	if err := h.discardStored(context.Background(), dir); err != nil {
		return err
	}
	err := errors.Join(os.RemoveAll(dir), os.RemoveAll(h.state(spareTenant, spec.ID)), h.ids.drop("", spec.ID))
	if err != nil {
		return err
	}
	return os.RemoveAll(spec.Run)
}

// adoptSpare ends what an earlier life of the host started for nobody: it may be
// made otherwise than this one would.
func (h *Host) adoptSpare(ctx context.Context, tier *Tier, spec Spec) error {
	i, err := tier.Driver.Adopt(ctx, spec)
	switch {
	case err == nil:
		err = h.end(spec, i)
	case errors.Is(err, ErrGone):
		return h.forget(spec)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", spec.Run, err)
	}
	return nil
}

// sweepSpares removes directories and users of instances that were nobody's and
// are not written down: the host was killed before it did, or behind their end.
func (h *Host) sweepSpares() error {
	dirs, err := os.ReadDir(filepath.Join(h.cfg.StateDir, poolDir))
	if err != nil {
		return err
	}
	left := h.ids.spares()
	for _, d := range dirs {
		left = append(left, d.Name())
	}
	var errs []error
	for _, id := range left {
		run := filepath.Join(h.cfg.StateDir, runDir, id)
		if _, err := os.Lstat(run); errors.Is(err, os.ErrNotExist) {
			errs = append(errs, h.forget(Spec{ID: id, Run: run}))
		}
	}
	return errors.Join(errs...)
}

// TryTiers proves that each tier with a name can make sandboxes here: it starts
// one for nobody and ends it. It is called before the host is used.
func (h *Host) TryTiers(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(h.tiers.all))
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		if tier := h.tiers.all[name]; name != "" {
			all.Go(func() { errs[i] = h.try(ctx, tier) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

func (h *Host) try(ctx context.Context, tier *Tier) error {
	r, err := h.newSpare(ctx, tier)
	if err == nil {
		err = h.endSpare(r)
	}
	if err != nil {
		return fmt.Errorf("tier %s: the driver %s cannot run: %w", tier.Name, tier.Driver.Name(), err)
	}
	return nil
}
