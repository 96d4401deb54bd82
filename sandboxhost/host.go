package sandboxhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/controld/controld/fair"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
)

// Config is what a [Host] is made of. StateDir and Driver are required.
type Config struct {
	// StateDir holds sandboxes/TENANT/SANDBOX, agents/TENANT/SANDBOX, run/INSTANCE
	// and journal/. It is made with mode 0700 where missing.
	StateDir string
	Driver   Driver
	// Others are drivers whose instances the host may have to take over: it
	// starts none with them.
	Others []Driver
	// Box is what sandboxes are made of.
	Box Box
	// Pool is how many instances are kept ready for sandboxes without files.
	Pool int
	// PoolFailed, where not nil, is told of what keeps a pool from being full.
	// The name is that of its tier.
	PoolFailed func(tier string, err error)
	// Tiers are other ways of making sandboxes than Driver, Box, IdleStop,
	// MaxLife and Pool say, and TenantTiers names that of a tenant, where it is one of
	// them. A sandbox is of its tier for the whole of a life.
	Tiers       []Tier
	TenantTiers map[string]string
	// Ended, where not nil, is told of every sandbox that has ended, and what
	// could not be cleared away behind it.
	Ended func(Spec, Death, error)
	// Tokens are what hello checks; nil refuses everybody.
	Tokens *Tokens
	// CertificateLogin lets a client certificate stand for a token: it opens
	// every sandbox of its tenant.
	CertificateLogin bool
	Limits           sandbox.Limits
	Quotas           Quotas
	// IdleStop is how long a sandbox lives that has no session, no call and no
	// transfer; the next hello starts another on the same files. 0 is for
	// ever.
	IdleStop time.Duration
	// MaxLife is how long a sandbox lives, used or not, unless it is extended;
	// 0 is without a bound.
	MaxLife time.Duration
	// Health says how agents are asked whether they still answer; never where
	// zero.
	Health Health
	// Epoch names this life of the host and its sandboxes; a new UUID where
	// empty.
	Epoch string
}

// Host keeps sandboxes. It implements server.Host. The caller closes it.
type Host struct {
	cfg    Config
	tiers  *tiers
	pools  pools
	ids    *ids
	births *fair.Gate // of commands

	// starts ends with Close: no start outlives it.
	starts   context.Context
	noStarts context.CancelFunc

	mu      sync.Mutex
	closed  bool
	tokens  *Tokens
	tenants map[string]*tenant
	living  sync.WaitGroup // watches and ends of lives, removals of files
}

var _ server.Host = (*Host)(nil)

// tenant is what one tenant has and uses.
type tenant struct {
	connections, calls, execs gauge
	bytes                     *rate.Limiter
	sandboxes                 map[string]*life // the last of each
}

// New returns a host without sandboxes: each is started when first used.
func New(cfg Config) (*Host, error) {
	cfg.Quotas.fill()
	if cfg.Epoch == "" {
		cfg.Epoch = uuid.NewString()
	}
	if cfg.Tokens == nil {
		cfg.Tokens = &Tokens{}
	}
	if cfg.Ended == nil {
		cfg.Ended = func(Spec, Death, error) {}
	}
	if cfg.PoolFailed == nil {
		cfg.PoolFailed = func(string, error) {}
	}
	tiers, err := newTiers(cfg)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"", "sandboxes", poolDir, runDir, "journal"} {
		if err := os.MkdirAll(filepath.Join(cfg.StateDir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	ids, err := openIDs(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, tiers: tiers, pools: newPools(tiers), ids: ids, births: newBirths(), tokens: cfg.Tokens, tenants: make(map[string]*tenant)}
	h.starts, h.noStarts = context.WithCancel(context.Background())
	return h, nil
}

// newBirths returns the gate of commands: so many as keep all processors busy
// while a start waits, or half as many as there are processors while tenants
// compete for them, which leaves the others to what comes next.
func newBirths() *fair.Gate {
	n := runtime.NumCPU()
	return fair.New(fair.Options{Alone: 4 * n, Shared: max(n/2, 1), Linger: time.Second})
}

// Epoch names this life of the host.
func (h *Host) Epoch() string { return h.cfg.Epoch }

// SetTokens replaces the grants. Sessions that are open stay open.
func (h *Host) SetTokens(t *Tokens) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tokens = t
}

// SetQuotas replaces the bounds of every tenant.
func (h *Host) SetQuotas(q Quotas) {
	q.fill()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cfg.Quotas = q
	for _, t := range h.tenants {
		t.bound(q)
	}
}

func (t *tenant) bound(q Quotas) {
	t.connections.bound(q.Connections)
	t.calls.bound(q.Calls)
	t.execs.bound(q.Execs)
	limit, burst := rate.Inf, 0
	if q.BytesPerSecond > 0 {
		// So much at once that a look at the time costs little, and so little
		// that the rate holds over a second.
		limit, burst = rate.Limit(q.BytesPerSecond), int(max(q.BytesPerSecond/16, 1))
	}
	t.bytes.SetLimit(limit)
	t.bytes.SetBurst(burst)
}

// BytesPerSecond returns what bounds the transfers of a tenant, nil where
// nothing does.
func (h *Host) BytesPerSecond(tenantName string) *rate.Limiter {
	if l := h.tenant(tenantName).bytes; l.Limit() != rate.Inf {
		return l
	}
	return nil
}

// bounded returns the backend on which the tenant's quotas hold.
func (h *Host) bounded(t *tenant, l *life) *bounded {
	return &bounded{Backend: l.backend, life: l, calls: &t.calls, execs: &t.execs, births: h.births}
}

// Backend returns a tenant's sandbox, which it starts where it does not run.
// Quotas of calls hold on it. ctx ends only this caller's waiting. What is not
// called does not use the sandbox: it may be stopped for that.
func (h *Host) Backend(ctx context.Context, tenantName, name string) (sandbox.Backend, error) {
	l, err := h.sandbox(ctx, tenantName, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	return h.bounded(h.tenant(tenantName), l), nil
}

// Open implements server.Host.
func (h *Host) Open(ctx context.Context, hello rpc.HelloParams, from server.Visitor) (*server.Session, error) {
	h.mu.Lock()
	tokens := h.tokens
	h.mu.Unlock()
	grant, who, err := h.authenticate(tokens, hello, from)
	if err != nil {
		return nil, err
	}
	t := h.tenant(grant.Tenant)
	if err := t.connections.take(rpc.MethodHello); err != nil {
		return nil, err
	}
	l, err := h.enter(ctx, grant.Tenant, hello.Sandbox)
	if err != nil {
		t.connections.give()
		return nil, err
	}
	return &server.Session{
		Tenant: grant.Tenant, Sandbox: hello.Sandbox, Who: who, WholeTenant: grant.Sandbox == AnySandbox,
		Backend: h.bounded(t, l),
		Info:    l.info, Epoch: l.info.Epoch,
		Closed:  l.instance.Done(),
		Life:    l.spec.ID,
		Reason:  l.reason,
		Release: func() { t.connections.give(); l.leave() },
	}, nil
}

// enter returns a sandbox that runs, with its directory, for a user who leaves
// it.
func (h *Host) enter(ctx context.Context, tenantName, name string) (*life, error) {
	for {
		l, err := h.sandbox(ctx, tenantName, name)
		if err != nil {
			return nil, err
		}
		// A command may have removed the directory.
		err = l.within(func() error { return os.Mkdir(h.dir(tenantName, name), 0o755) })
		if err == nil || errors.Is(err, os.ErrExist) {
			return l, nil
		}
		l.leave()
		if !errors.Is(err, errEnding) {
			return nil, sandbox.AsError(rpc.MethodHello, "", err)
		}
	}
}

func (h *Host) tenant(name string) *tenant {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tenants[name]
	if t == nil {
		t = &tenant{sandboxes: make(map[string]*life), bytes: rate.NewLimiter(rate.Inf, 0)}
		t.connections.what, t.calls.what, t.execs.what = "connections", "calls", "commands"
		t.bound(h.cfg.Quotas)
		h.tenants[name] = t
	}
	return t
}

// sandbox returns a sandbox that runs, for a user who leaves it. Callers that
// come at once share the start; a failed start is not remembered, nor a sandbox
// that has ended.
func (h *Host) sandbox(ctx context.Context, tenantName, name string) (*life, error) {
	t := h.tenant(tenantName)
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, draining("start", sandbox.OutcomeNone)
	}
	l := t.sandboxes[name]
	if l == nil || l.over() || !l.enter() {
		if err := l.mayFollow(); err != nil {
			h.mu.Unlock()
			return nil, err
		}
		l = h.another(t, tenantName, name)
	}
	h.mu.Unlock()
	select {
	case <-l.begun:
		if l.err == nil {
			return l, nil
		}
		l.leave()
		return nil, l.err
	case <-ctx.Done():
		l.leave()
		return nil, sandbox.Cancelled(ctx, "start", "")
	}
}

func draining(op string, outcome sandbox.Outcome) error {
	return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: op, Reason: sandbox.ReasonDraining, Outcome: outcome}
}

// another starts the next life of a sandbox, with its first user.
func (h *Host) another(t *tenant, tenantName, name string) *life {
	last, epoch := t.sandboxes[name], h.cfg.Epoch
	if last != nil {
		epoch = uuid.NewString()
	}
	l := h.newLife(h.tiers.tier(tenantName), Spec{Tenant: tenantName, Sandbox: name, Epoch: epoch})
	if l.after = last.unfinished(); last != nil && last.over() {
		l.before = last.fallen()
	}
	l.enter()
	t.sandboxes[name] = l
	go h.start(l)
	return l
}

// dir is the directory of a sandbox.
func (h *Host) dir(tenantName, name string) string {
	return filepath.Join(h.cfg.StateDir, "sandboxes", tenantName, name)
}

// state is the directory of a sandbox's agent.
func (h *Host) state(tenantName, name string) string {
	return filepath.Join(h.cfg.StateDir, "agents", tenantName, name)
}

// Close stops every sandbox, and what is ready to be one, and waits. It may be called twice.
func (h *Host) Close() error {
	h.noStarts()
	h.mu.Lock()
	h.closed = true
	var all []*life
	for _, t := range h.tenants {
		for _, l := range t.sandboxes {
			for ; l != nil; l = l.after {
				all = append(all, l)
			}
		}
	}
	h.mu.Unlock()
	var wg sync.WaitGroup
	var spares error
	wg.Go(func() { spares = h.closePools() })
	errs := make([]error, len(all))
	for i, l := range all {
		wg.Go(func() {
			if <-l.begun; l.err == nil {
				errs[i] = l.instance.Stop()
			}
		})
	}
	wg.Wait()
	h.living.Wait()
	return errors.Join(append(errs, spares)...)
}
