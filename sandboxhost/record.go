package sandboxhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// runDir is where instances have their directories, below the state directory.
const runDir = "run"

// specFile is what an instance's directory says of it.
const specFile = "spec.json"

// adoptTimeout is how long an agent may take to answer another life of the host.
const adoptTimeout = 10 * time.Second

// writeSpec writes down what is about to be started: the directory holds it
// whole or not at all.
func writeSpec(spec Spec) error { return putSpec(spec, func(string) error { return nil }) }

// replaceSpec writes down what an instance is from now on, so that it is found
// behind a loss of power as well.
func replaceSpec(spec Spec) error { return putSpec(spec, syncFile) }

func putSpec(spec Spec, settle func(path string) error) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	temp := filepath.Join(spec.Run, specFile+".new")
	if err := os.WriteFile(temp, append(text, '\n'), 0o600); err != nil {
		return err
	}
	if err := settle(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(spec.Run, specFile)); err != nil {
		return err
	}
	return settle(spec.Run)
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// readSpec reads what [writeSpec] wrote of an instance.
func readSpec(dir string) (Spec, error) {
	var spec Spec
	text, err := os.ReadFile(filepath.Join(dir, specFile))
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err == nil && spec.ID != filepath.Base(dir) {
		err = fmt.Errorf("%s is of another instance, %q", specFile, spec.ID)
	}
	return spec, err
}

// Adopt takes over the sandboxes that an earlier life of the host left running
// and clears away what is left of the others. It is called once, before the
// host is used. Its error names what could be neither; the host can be used all
// the same.
func (h *Host) Adopt(ctx context.Context) error {
	h.living.Go(h.sweepDiscarded)
	dirs, err := os.ReadDir(filepath.Join(h.cfg.StateDir, runDir))
	if err != nil {
		return err
	}
	errs := make([]error, len(dirs))
	var all sync.WaitGroup
	for i, d := range dirs {
		all.Go(func() { errs[i] = h.adopt(ctx, filepath.Join(h.cfg.StateDir, runDir, d.Name())) })
	}
	all.Wait()
	return errors.Join(append(errs, h.sweepSpares())...)
}

// adopt takes over the one instance of a directory.
func (h *Host) adopt(ctx context.Context, dir string) error {
	spec, err := readSpec(dir)
	if errors.Is(err, os.ErrNotExist) {
		return os.RemoveAll(dir) // nothing was started yet
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	tier := h.tiers.maker(spec)
	if tier == nil {
		return fmt.Errorf("%s: made by the driver %q, which is not there", dir, spec.Driver)
	}
	h.place(&spec)
	spec.Epoch = h.cfg.Epoch
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	if spec.isSpare() {
		return h.adoptSpare(ctx, tier, spec)
	}
	l := h.newLife(tier, spec)
	if l.instance, err = tier.Driver.Adopt(ctx, spec); err == nil {
		if spec.Paused {
			l.instance.Resume(ctx) // it may not have come to the pause
		}
		if err = h.settle(spec); err != nil {
			return fmt.Errorf("%s: %w", dir, errors.Join(err, h.end(spec, l.instance)))
		}
		if err = l.meet(ctx); err == nil {
			h.keep(l)
			return nil
		}
	}
	if !errors.Is(err, ErrGone) {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return h.forget(spec)
}

// keep has the host know a life that runs.
func (h *Host) keep(l *life) {
	if l.spec.Paused {
		l.spec.Paused = false
		writeSpec(l.spec) // what is resumed once more is none the worse
	}
	close(l.begun)
	t := h.tenant(l.spec.Tenant)
	h.mu.Lock()
	t.sandboxes[l.spec.Sandbox] = l
	h.mu.Unlock()
	l.begin(steady(l.due()))
	h.watchOver(l)
}
