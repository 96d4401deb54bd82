package sandboxhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
)

// removal is what becomes of a sandbox_remove. It takes the place of a life, so
// that the next one waits for it.
type removal struct {
	life *life
	err  error // stands once life is cleared away
}

// errRemoved is why a removal does not run.
var errRemoved = errors.New("the sandbox was removed")

// RemoveSandbox implements [server.Sandboxes].
func (h *Host) RemoveSandbox(ctx context.Context, s *server.Session, name string, files bool) error {
	t, done, err := h.call(s, rpc.MethodSandboxRemove, name)
	if err != nil {
		return err
	}
	defer done()
	r, err := h.beginRemoval(t, s.Tenant, name, files)
	if err != nil {
		return err
	}
	select {
	case <-r.life.cleared:
		return r.err
	case <-ctx.Done():
		return sandbox.Cancelled(ctx, rpc.MethodSandboxRemove, "")
	}
}

func (h *Host) beginRemoval(t *tenant, tenantName, name string, files bool) (*removal, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, draining(rpc.MethodSandboxRemove, sandbox.OutcomeNone)
	}
	before := t.sandboxes[name]
	if before != nil && before.over() {
		before = before.unfinished()
	}
	if before == nil && !h.hasFiles(tenantName, name) {
		return nil, notThere(rpc.MethodSandboxRemove)
	}
	r := &removal{life: h.newLife(h.tiers.tier(tenantName), Spec{Tenant: tenantName, Sandbox: name})}
	r.life.err = errRemoved
	r.life.after = before
	r.life.end()
	close(r.life.begun)
	t.sandboxes[name] = r.life
	h.living.Go(func() {
		defer close(r.life.cleared)
		r.err = h.remove(r.life, before, files)
	})
	return r, nil
}

// remove ends the life before a removal, and then removes the files.
func (h *Host) remove(r, before *life, files bool) error {
	if before != nil {
		<-before.begun
		if err := h.finish(before); err != nil {
			return sandbox.AsError(rpc.MethodSandboxRemove, "", err)
		}
		h.mu.Lock()
		r.after = nil
		h.mu.Unlock()
	}
	if !files {
		return nil
	}
	return h.discard(r.spec.Tenant, r.spec.Sandbox)
}

// finish ends a life whose start is over, or waits for its end.
func (h *Host) finish(l *life) error {
	if l.instance == nil || l.err != nil {
		<-l.cleared
		return nil
	}
	l.end()
	return h.stop(l)
}

// discarded begins the names of directories that are being removed. No sandbox
// has such a name.
const discarded = ".removed-"

// discard removes a sandbox's directory. It goes out of the way first, so that
// nobody ever finds a part of it.
func (h *Host) discard(tenantName, name string) error {
	const op = rpc.MethodSandboxRemove
	if err := local.RemoveTree(h.starts, h.state(tenantName, name)); err != nil && !errors.Is(err, os.ErrNotExist) && h.starts.Err() == nil {
		return sandbox.AsError(op, "", err)
	}
	dir := h.dir(tenantName, name)
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return sandbox.AsError(op, "", err)
	case !info.IsDir(): // a link that the operator made: it alone
		if err := os.Remove(dir); err != nil {
			return sandbox.AsError(op, "", err)
		}
		return nil
	}
	aside := filepath.Join(filepath.Dir(dir), discarded+name+"-"+uuid.NewString())
	if err := os.Rename(dir, aside); err != nil {
		return sandbox.AsError(op, "", err)
	}
	switch err := h.erase(aside); {
	case h.starts.Err() != nil && err != nil:
		return draining(op, sandbox.OutcomeUnknown) // the next life of the host goes on
	case err != nil:
		return sandbox.AsError(op, "", err)
	}
	return nil
}

// erase removes the directory of a sandbox that has ended, and before what
// drivers keep of it elsewhere, which the directory may tell of.
func (h *Host) erase(dir string) error {
	if err := h.discardStored(h.starts, dir); err != nil {
		return err
	}
	return local.RemoveTree(h.starts, dir)
}

// discardStored removes what drivers keep elsewhere of a sandbox.
func (h *Host) discardStored(ctx context.Context, dir string) error {
	for _, d := range h.tiers.drivers() {
		if s, ok := d.(Storer); ok {
			if err := s.Discard(ctx, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweepDiscarded removes what earlier lives of the host have begun to remove.
// What cannot be removed is tried again by the next.
func (h *Host) sweepDiscarded() {
	left, _ := filepath.Glob(filepath.Join(h.cfg.StateDir, "sandboxes", "*", discarded+"*"))
	var all sync.WaitGroup
	for _, dir := range left {
		all.Go(func() { h.erase(dir) })
	}
	all.Wait()
}
