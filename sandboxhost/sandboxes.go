package sandboxhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
)

var _ server.Sandboxes = (*Host)(nil)

// call counts a call about sandboxes against the tenant's bound, and says
// whether the session may name that one.
func (h *Host) call(s *server.Session, op, name string) (t *tenant, done func(), err error) {
	t = h.tenant(s.Tenant)
	if err := t.calls.take(op); err != nil {
		return nil, nil, err
	}
	if !s.WholeTenant && name != s.Sandbox {
		t.calls.give()
		return nil, nil, notThere(op)
	}
	return t, t.calls.give, nil
}

func notThere(op string) error {
	return &sandbox.Error{Kind: sandbox.KindNotFound, Op: op, Message: "no such sandbox"}
}

// ListSandboxes implements [server.Sandboxes].
func (h *Host) ListSandboxes(ctx context.Context, s *server.Session) ([]sandbox.Status, error) {
	t, done, err := h.call(s, rpc.MethodSandboxList, s.Sandbox)
	if err != nil {
		return nil, err
	}
	defer done()
	lives, err := h.lives(t, s.Tenant)
	if err != nil {
		return nil, sandbox.AsError(rpc.MethodSandboxList, "", err)
	}
	var out []sandbox.Status
	for name, l := range lives {
		if s.WholeTenant || name == s.Sandbox {
			out = append(out, h.status(ctx, s.Tenant, name, l))
		}
	}
	slices.SortFunc(out, func(a, b sandbox.Status) int { return strings.Compare(a.Sandbox, b.Sandbox) })
	return out, nil
}

// lives returns a tenant's sandboxes, nil for those that do not run.
func (h *Host) lives(t *tenant, tenantName string) (map[string]*life, error) {
	lives := make(map[string]*life)
	dirs, err := os.ReadDir(filepath.Dir(h.dir(tenantName, "any")))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, d := range dirs {
		if d.IsDir() && sandboxName.MatchString(d.Name()) {
			lives[d.Name()] = nil
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, l := range t.sandboxes {
		if !l.over() {
			lives[name] = l
		}
	}
	return lives, nil
}

// SandboxStatus implements [server.Sandboxes].
func (h *Host) SandboxStatus(ctx context.Context, s *server.Session, name string) (sandbox.Status, error) {
	t, done, err := h.call(s, rpc.MethodSandboxInfo, name)
	if err != nil {
		return sandbox.Status{}, err
	}
	defer done()
	l := h.alive(t, name)
	if l == nil && !h.hasFiles(s.Tenant, name) {
		return sandbox.Status{}, notThere(rpc.MethodSandboxInfo)
	}
	return h.status(ctx, s.Tenant, name, l), nil
}

// alive returns the life of a sandbox that runs or starts, else nil.
func (h *Host) alive(t *tenant, name string) *life {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := t.sandboxes[name]; l != nil && !l.over() {
		return l
	}
	return nil
}

func (h *Host) hasFiles(tenantName, name string) bool {
	_, err := os.Lstat(h.dir(tenantName, name))
	return err == nil
}

// status tells of a sandbox and its life, which is nil where it does not run.
func (h *Host) status(ctx context.Context, tenantName, name string, l *life) sandbox.Status {
	tier := h.tiers.tier(tenantName)
	if l != nil && !l.over() {
		tier = l.tier
	}
	s := sandbox.Status{Sandbox: name, State: sandbox.StateStopped, Driver: tier.Driver.Name(), Tier: tier.Name, IdleStop: tier.IdleStop}
	switch {
	case l == nil:
		return s
	case !isClosed(l.begun):
		s.State = sandbox.StateStarting
		return s
	case l.over():
		return s
	}
	s.State, s.Instance, s.Epoch = sandbox.StateRunning, l.spec.ID, l.spec.Epoch
	s.Started = sandbox.Optional[time.Time]{Value: l.spec.Started, Known: !l.spec.Started.IsZero()}
	if ends := l.boundAt(); !ends.IsZero() {
		s.Ends = sandbox.Some(ends)
	}
	if l.paused.Load() {
		s.State = sandbox.StatePaused
	}
	if used, err := l.instance.Stats(ctx); err == nil {
		s.CPU, s.Memory, s.Processes = sandbox.Some(used.CPU), sandbox.Some(used.Memory), sandbox.Some(used.Processes)
	}
	return s
}

// CreateSandbox implements [server.Sandboxes].
func (h *Host) CreateSandbox(ctx context.Context, s *server.Session, name string) (sandbox.Status, error) {
	_, done, err := h.call(s, rpc.MethodSandboxCreate, name)
	if err != nil {
		return sandbox.Status{}, err
	}
	defer done()
	l, err := h.enter(ctx, s.Tenant, name)
	if err != nil {
		return sandbox.Status{}, err
	}
	defer l.leave()
	return h.status(ctx, s.Tenant, name, l), nil
}

// ExtendSandbox implements [server.Sandboxes]. The end that it moves is written
// down, for another life of the host.
func (h *Host) ExtendSandbox(ctx context.Context, s *server.Session, name string, least time.Duration) (sandbox.Status, error) {
	t, done, err := h.call(s, rpc.MethodSandboxExtend, name)
	if err != nil {
		return sandbox.Status{}, err
	}
	defer done()
	l, err := h.begun(ctx, t, rpc.MethodSandboxExtend, name)
	if err != nil {
		return sandbox.Status{}, err
	}
	err = l.extend(time.Now().Add(min(least, l.tier.MaxLife)), func(ends time.Time) error { return l.record(ends, l.paused.Load()) })
	switch {
	case errors.Is(err, errEnding) || l.over():
		return sandbox.Status{}, notThere(rpc.MethodSandboxExtend)
	case err != nil:
		return sandbox.Status{}, sandbox.AsError(rpc.MethodSandboxExtend, "", err)
	}
	return h.status(ctx, s.Tenant, name, l), nil
}
