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
	if err := errors.Join(r.unlink(), r.instance.Stop()); err != nil {
		return err
	}
	return h.forget(r.spec)
}

// forget removes what is left of an instance that has ended and was nobody's.
// Nothing has a file of its users then: they can be another's.
func (h *Host) forget(spec Spec) error {
	dir := h.spareDir(spec.ID)
	if err := h.discardStored(context.Background(), dir); err != nil {
		return err
	}
	err := errors.Join(os.RemoveAll(dir), os.RemoveAll(h.state(spareTenant, spec.ID)), h.ids.drop(spec.owner()))
	if err != nil {
		return err
	}
	return os.RemoveAll(spec.Run)
}

// adoptSpare ends what an earlier life of the host started for nobody.
func (h *Host) adoptSpare(ctx context.Context, tier *Tier, spec Spec) error {
	i, err := tier.Driver.Adopt(ctx, spec)
	if err == nil {
		err = i.Stop()
	}
	if err != nil && !errors.Is(err, ErrGone) {
		return fmt.Errorf("%s: %w", spec.Run, err)
	}
	return h.forget(spec)
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
