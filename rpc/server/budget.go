package server

import (
	"context"
	"sync"
)

// budgets hold one budget a tenant, while it has connections.
type budgets struct {
	most int64
	mu   sync.Mutex
	by   map[string]*budget
}

// open returns the tenant's budget; the caller closes it with close.
func (b *budgets) open(tenant string) *budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = make(map[string]*budget)
	}
	t := b.by[tenant]
	if t == nil {
		t = &budget{most: b.most, free: b.most}
		b.by[tenant] = t
	}
	t.users++
	return t
}

func (b *budgets) close(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.by[tenant]; t != nil {
		if t.users--; t.users == 0 {
			delete(b.by, tenant)
		}
	}
}

// budget is how many bytes of contents a tenant may have in memory.
type budget struct {
	users int // guarded by budgets

	mu      sync.Mutex
	most    int64
	free    int64
	waiting []*claim
}

// claim waits for its share, in order of arrival.
type claim struct {
	n     int64
	ready chan struct{}
}

// clamp lets one call that is larger than the whole budget have all of it.
func (b *budget) clamp(n int64) int64 { return min(n, b.most) }

// take takes n bytes, waiting for them. It returns what to give back.
func (b *budget) take(ctx context.Context, n int64) (int64, error) {
	n = b.clamp(n)
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		b.mu.Unlock()
		return n, nil
	}
	cl := &claim{n: n, ready: make(chan struct{})}
	b.waiting = append(b.waiting, cl)
	b.mu.Unlock()
	select {
	case <-cl.ready:
		return n, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.waiting {
		if w == cl {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			b.serve()
			return 0, context.Cause(ctx)
		}
	}
	b.free += n
	b.serve()
	return 0, context.Cause(ctx)
}

// try takes n bytes if they are free and nobody waits for them.
func (b *budget) try(n int64) (int64, bool) {
	n = b.clamp(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || b.free < n {
		return 0, false
	}
	b.free -= n
	return n, true
}

// grab takes n bytes if they are free, past those that wait.
func (b *budget) grab(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free < n {
		return false
	}
	b.free -= n
	return true
}

// grabUpTo takes as much of n as is free.
func (b *budget) grabUpTo(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, max(b.free, 0))
	b.free -= n
	return n
}

// give returns n bytes.
func (b *budget) give(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.serve()
}

// serve wakes those whose turn has come; the caller holds the lock.
func (b *budget) serve() {
	for len(b.waiting) > 0 && b.waiting[0].n <= b.free {
		cl := b.waiting[0]
		b.free -= cl.n
		close(cl.ready)
		b.waiting = b.waiting[1:]
	}
	if len(b.waiting) == 0 {
		b.waiting = nil
	}
}
