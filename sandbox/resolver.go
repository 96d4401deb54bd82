package sandbox

import (
	"context"
	"errors"
	"sync"
)

// Tier names a kind of isolation, by the operator's own words.
type Tier string

// Connection is a dialled API with what ends it.
type Connection struct {
	API API
	// Close releases it; nil where there is nothing to release.
	Close func() error
}

// ResolverConfig is the policy of a [Resolver].
type ResolverConfig struct {
	// Tier says which isolation a tenant gets; nil gives all the empty tier.
	// This is the one place where that is decided.
	Tier func(tenant string) Tier
	// Dial connects a tenant to its place. Its context ends when the tenant
	// is evicted or the resolver closed, not when a caller gives up.
	Dial func(ctx context.Context, tenant string, tier Tier) (Connection, error)
}

// Resolver gives each tenant one shared API, connected at the first call.
// Calls that come at once share one dial; a failed dial is not remembered.
type Resolver struct {
	cfg ResolverConfig

	mu      sync.Mutex
	closed  bool
	tenants map[string]*resolution
}

// resolution is one tenant's dial, running or done.
type resolution struct {
	cancel context.CancelFunc
	done   chan struct{}
	conn   Connection
	err    error
}

// NewResolver returns a resolver that has dialled nobody yet.
func NewResolver(cfg ResolverConfig) *Resolver {
	return &Resolver{cfg: cfg, tenants: make(map[string]*resolution)}
}

// Resolve returns the tenant's API and dials it where nobody has. When ctx
// ends only this caller's waiting ends. After Close it is an error of kind
// [KindUnavailable].
func (r *Resolver) Resolve(ctx context.Context, tenant string) (API, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, &Error{Kind: KindUnavailable, Op: "resolve", Reason: "closed", Outcome: OutcomeNone}
	}
	res := r.tenants[tenant]
	if res == nil {
		dialCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		res = &resolution{cancel: cancel, done: make(chan struct{})}
		r.tenants[tenant] = res
		go r.dial(dialCtx, tenant, res)
	}
	r.mu.Unlock()
	select {
	case <-res.done:
		return res.conn.API, res.err
	case <-ctx.Done():
		return nil, Cancelled(ctx, "resolve", "")
	}
}

func (r *Resolver) dial(ctx context.Context, tenant string, res *resolution) {
	defer close(res.done)
	var tier Tier
	if r.cfg.Tier != nil {
		tier = r.cfg.Tier(tenant)
	}
	res.conn, res.err = r.cfg.Dial(ctx, tenant, tier)
	if res.err != nil {
		r.mu.Lock()
		if r.tenants[tenant] == res {
			delete(r.tenants, tenant)
		}
		r.mu.Unlock()
	}
}

// Evict forgets a tenant, ends a dial that runs and closes its connection.
// The next Resolve dials anew. It waits for all of that.
func (r *Resolver) Evict(tenant string) error {
	r.mu.Lock()
	res := r.tenants[tenant]
	delete(r.tenants, tenant)
	r.mu.Unlock()
	if res == nil {
		return nil
	}
	return res.close()
}

func (res *resolution) close() error {
	res.cancel()
	<-res.done
	if res.err != nil || res.conn.Close == nil {
		return nil
	}
	return res.conn.Close()
}

// Close evicts everybody and waits. Later calls return at once.
func (r *Resolver) Close() error {
	r.mu.Lock()
	r.closed = true
	all := r.tenants
	r.tenants = map[string]*resolution{}
	r.mu.Unlock()
	var errs []error
	for _, res := range all {
		errs = append(errs, res.close())
	}
	return errors.Join(errs...)
}
