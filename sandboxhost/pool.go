package sandboxhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A pool that fails again and again is left alone, longer each time.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// pauseAfter is how long to wait after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	pause := firstPause
	for ; failures > 1 && pause < longestPause; failures-- {
		pause *= 2
	}
	if failures == 0 {
		return 0
	}
	return min(pause, longestPause)
}

// pools are those of the tiers that have one.
type pools struct {
	of map[string]*pool // by the tier's name
	// starts bounds those that go on at once, so that the processors are there
	// for sandboxes that somebody waits for.
	starts chan struct{}
}

func newPools(t *tiers) pools {
	p := pools{of: make(map[string]*pool), starts: make(chan struct{}, max(runtime.NumCPU()/2, 1))}
	for name, tier := range t.all {
		if tier.Pool > 0 {
			p.of[name] = &pool{tier: tier, changed: make(chan struct{}, 1)}
		}
	}
	return p
}

// pool holds instances of a tier that are nobody's yet. Whoever takes one out
// of ready owns it.
type pool struct {
	tier    *Tier
	changed chan struct{} // one is missing

	mu       sync.Mutex
	closed   bool
	ready    []*spare
	given    time.Time // when one was the last time
	failures int       // of starts, and deaths of what was ready, in a row
	failed   time.Time
}

// spare is an instance that is nobody's yet.
type spare struct {
	*running
	owned chan struct{} // closed when it is out of the pool
}

// FillPools starts, in the background, the instances that tiers keep ready, and
// goes on to do so until Close. It is called behind [Host.Adopt], once.
func (h *Host) FillPools() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for _, p := range h.pools.of {
		h.living.Go(func() { h.fill(p) })
	}
}

// Ready tells how many instances each tier with a pool has ready, by its name.
func (h *Host) Ready() map[string]int {
	ready := make(map[string]int)
	for name, p := range h.pools.of {
		p.mu.Lock()
		ready[name] = len(p.ready)
		p.mu.Unlock()
	}
	return ready
}

// fill keeps a pool full until the host is closed.
func (h *Host) fill(p *pool) {
	for p.due(h.starts) {
		select {
		case h.pools.starts <- struct{}{}:
		case <-h.starts.Done():
			return
		}
		r, err := h.readySpare(h.starts, p.tier)
		<-h.pools.starts
		switch {
		case err == nil:
			h.add(p, r)
		case h.starts.Err() == nil:
			p.fail()
			h.cfg.PoolFailed(p.tier.Name, err)
		}
	}
}

// readySpare starts an instance that can be given away.
func (h *Host) readySpare(ctx context.Context, tier *Tier) (*running, error) {
	r, err := h.newSpare(ctx, tier)
	if err == nil && !r.dialled() {
		err = errors.Join(Unsupported("start", "the driver %s keeps nothing ready", tier.Driver.Name()), h.endSpare(r))
	}
	return r, err
}

// add puts an instance into its pool, where it is watched.
func (h *Host) add(p *pool, r *running) {
	s := &spare{running: r, owned: make(chan struct{})}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		h.discardSpare(r)
		return
	}
	p.ready = append(p.ready, s)
	p.mu.Unlock()
	h.living.Go(func() { h.keepReady(p, s) })
}

// keepReady sees to what is ready until somebody owns it, and replaces it where
// it ends before, or does not answer.
func (h *Host) keepReady(p *pool, s *spare) {
	lost := func() {
		if p.remove(s) {
			p.fail()
			h.discardSpare(s.running)
		}
	}
	h.attend(s.running, s.owned, func() bool { return false }, lost)
	lost()
}

// discardSpare ends an instance that is nobody's and tells of it.
func (h *Host) discardSpare(r *running) {
	err := h.endSpare(r)
	death := notEnding
	if isClosed(r.instance.Done()) {
		death = r.instance.Death()
	}
	h.cfg.Ended(r.spec, death, err)
}

// quiet is how long after one was given away the next is started: what it was
// given for has the processors first.
const quiet = 100 * time.Millisecond

// due waits until the next is to be started; false when ctx ends.
func (p *pool) due(ctx context.Context) bool {
	for {
		pause, missing := p.pause()
		if missing && pause <= 0 {
			return ctx.Err() == nil
		}
		var later <-chan time.Time
		if missing {
			later = time.After(pause)
		}
		select {
		case <-later:
		case <-p.changed:
		case <-ctx.Done():
			return false
		}
	}
}

// pause is how long to wait until the next start, where one is missing.
func (p *pool) pause() (pause time.Duration, missing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) >= p.tier.Pool {
		return 0, false
	}
	if len(p.ready) > 0 {
		pause = time.Until(p.given.Add(quiet))
	}
	return max(pause, time.Until(p.failed.Add(pauseAfter(p.failures)))), true
}

func (p *pool) fail() {
	p.mu.Lock()
	p.failures++
	p.failed = time.Now()
	p.mu.Unlock()
	p.tell()
}

// tell has the pool be looked at.
func (p *pool) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// take takes the one out that is ready for longest, nil where there is none.
func (p *pool) take() *spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.ready {
		if isClosed(s.instance.Done()) {
			continue // its watch takes it out
		}
		p.ready = slices.Delete(p.ready, i, i+1)
		p.given, p.failures = time.Now(), 0
		close(s.owned)
		p.tell()
		return s
	}
	return nil
}

// remove takes that one out; false where it is out.
func (p *pool) remove(s *spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.ready, s)
	if i < 0 {
		return false
	}
	p.ready = slices.Delete(p.ready, i, i+1)
	return true
}

// close takes all out; none comes in any more.
func (p *pool) close() []*spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	all := p.ready
	p.ready = nil
	for _, s := range all {
		close(s.owned)
	}
	return all
}

// closePools ends what is nobody's.
func (h *Host) closePools() error {
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for _, p := range h.pools.of {
		for _, s := range p.close() {
			all.Go(func() {
				if err := h.endSpare(s.running); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// fromPool has a life begin with an instance that was ready. It is false where
// there is none, and where the sandbox has files: its users must be the same.
func (h *Host) fromPool(l *life) bool {
	p := h.pools.of[l.tier.Name]
	if p == nil || p.tier != l.tier || h.hasFiles(l.spec.Tenant, l.spec.Sandbox) {
		return false
	}
	s := p.take()
	if s == nil {
		return false
	}
	if err := h.give(s.running, l); err != nil {
		p.fail()
		writeSpec(s.spec) // should it not end, it is nobody's all the same
		h.discardSpare(s.running)
		h.cfg.PoolFailed(p.tier.Name, err)
		return false
	}
	return true
}

// give makes an instance that was nobody's that of a sandbox. From the moment
// in which that stands in its record it is never anybody else's, and a host that
// is killed behind that moment has the next one do the rest; see [Host.settle].
func (h *Host) give(r *running, to *life) error {
	spec := r.spec
	spec.Tenant, spec.Sandbox, spec.Epoch, spec.Started = to.spec.Tenant, to.spec.Sandbox, to.spec.Epoch, time.Now()
	h.place(&spec)
	if err := os.MkdirAll(filepath.Dir(spec.Dir), 0o700); err != nil {
		return err
	}
	if err := replaceSpec(spec); err != nil {
		return err
	}
	if err := h.settle(spec); err != nil {
		return err
	}
	r.is(spec)
	to.running = *r
	return nil
}

// settle gives a sandbox the users and the directories of the instance that its
// record says is its own. It can be done again.
func (h *Host) settle(spec Spec) error {
	if err := h.ids.move(spec); err != nil {
		return err
	}
	if err := h.moveState(spec); err != nil {
		return err
	}
	if err := os.Rename(h.spareDir(spec.ID), spec.Dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// moveState gives a sandbox the directory of the agent of the instance that is
// its own now. One that is there is of files that are no more.
func (h *Host) moveState(spec Spec) error {
	from := h.state(spareTenant, spec.ID)
	if _, err := os.Lstat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(spec.State); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(spec.State), 0o700); err != nil {
		return err
	}
	return os.Rename(from, spec.State)
}

// is has an instance be another one's.
func (r *running) is(spec Spec) {
	r.spec = spec
	r.info.Tenant, r.info.Sandbox, r.info.Epoch = spec.Tenant, spec.Sandbox, spec.Epoch
	if l, ok := r.backend.(*linked); ok {
		l.spec = spec
	}
}
