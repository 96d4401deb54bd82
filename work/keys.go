package work

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/controld/controld/sandbox"
)

// KeysConfig bounds what is kept for each tenant. Zero fields take the
// protocol's defaults.
type KeysConfig struct {
	// Dir is where keys are written down, a directory for each tenant; with
	// none a restart forgets them.
	Dir string
	// Answers is how long an answer is kept (10 min), MaxAnswers how many are
	// (4,096), MaxAnswerBytes how much (64 MiB).
	Answers        time.Duration
	MaxAnswers     int
	MaxAnswerBytes int64
	// Remember is how long the bare key is known at least (24 h),
	// MaxRemembered how many are (1,048,576).
	Remember      time.Duration
	MaxRemembered int
}

// What a KeysConfig has where it names nothing else; see its fields.
const (
	KeptFor        = 10 * time.Minute
	MaxAnswers     = 4096
	MaxAnswerBytes = 64 << 20
	Remember       = 24 * time.Hour
)

func (c *KeysConfig) fill() {
	fill(&c.Answers, KeptFor)
	fill(&c.MaxAnswers, MaxAnswers)
	fill(&c.MaxAnswerBytes, MaxAnswerBytes)
	fill(&c.Remember, Remember)
	fill(&c.MaxRemembered, 1<<20)
}

func fill[T int | int64 | time.Duration](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// Keys knows the calls of all tenants by their keys.
type Keys struct {
	cfg KeysConfig

	mu      sync.Mutex
	closed  bool
	tenants map[string]*TenantKeys
}

// NewKeys returns what knows no call yet. Keys that an earlier process wrote
// down are read when their tenant calls. The caller closes it.
func NewKeys(cfg KeysConfig) (*Keys, error) {
	cfg.fill()
	if cfg.Dir != "" {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			return nil, err
		}
		if err := sweepPages(cfg.Dir, cfg.Remember, time.Now()); err != nil {
			return nil, err
		}
	}
	return &Keys{cfg: cfg, tenants: make(map[string]*TenantKeys)}, nil
}

// Remembered is how long a key is known over a restart; zero where it is not.
func (k *Keys) Remembered() time.Duration {
	if k.cfg.Dir == "" {
		return 0
	}
	return k.cfg.Remember
}

// Tenant returns the keys of one tenant.
func (k *Keys) Tenant(name string) *TenantKeys {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tenants[name]
	if t == nil {
		t = &TenantKeys{cfg: &k.cfg, calls: make(map[ident]*Call), closed: k.closed}
		t.memory = memory{keep: k.cfg.Remember, most: k.cfg.MaxRemembered}
		if k.cfg.Dir != "" {
			t.memory.dir = filepath.Join(k.cfg.Dir, name)
		}
		k.tenants[name] = t
	}
	return t
}

// Close forgets all answers; what was written stays. It may be called twice.
func (k *Keys) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, t := range k.tenants {
		t.close()
	}
}

// ident is what a call is known by within its tenant.
type ident struct{ sandbox, key string }

// life is how the key of a call is written down for one life of its sandbox.
func (id ident) life(name string) mark { return markOf("life "+name, id.key) }

// Call is a call with a key. It runs, or its answer is kept.
type Call struct {
	// Work is the caller's own, see [TenantKeys.Begin].
	Work any

	t       *TenantKeys
	id      ident
	params  uint64
	written []written
	size    int64
	ended   time.Time
}

// written is a mark and where it stands.
type written struct {
	mark mark
	at   place
}

// TenantKeys are the keys of one tenant.
type TenantKeys struct {
	cfg *KeysConfig

	mu     sync.Mutex
	closed bool
	loaded bool
	memory memory
	calls  map[ident]*Call
	kept   answers
}

// Begin takes a key for a call of which params is a hash. A key that is new is
// remembered, and start, which must not block, begins the work and returns it;
// a key whose call runs or whose answer is kept returns that call, and first is
// false. Nothing is begun where it returns an error: of [sandbox.KindConflict]
// for other params, [sandbox.KindOutcomeUnknown] for a call that is past,
// [sandbox.KindResourceExhausted] where the key cannot be remembered.
//
// life, where not empty, names the life of a sandbox whose agent knows calls by
// their keys itself. A call that is past is begun again while that life goes on:
// the agent has its answer, or never saw it.
func (t *TenantKeys) Begin(sandboxName, life, key string, params uint64, start func(*Call) any) (c *Call, first bool, err error) {
	id := ident{sandboxName, key}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.calls[id]; c != nil {
		if c.params != params {
			return nil, false, &sandbox.Error{Kind: sandbox.KindConflict, Message: "the request key is another call's"}
		}
		return c, false, nil
	}
	c = &Call{t: t, id: id, params: params}
	if c.written, err = t.remember(id, life); err != nil {
		return nil, false, err
	}
	t.calls[id] = c
	c.Work = start(c)
	return c, true, nil
}

// remember writes a key down, once, and with it that it is of this life.
func (t *TenantKeys) remember(id ident, life string) ([]written, error) {
	now := time.Now()
	if err := t.load(now); err != nil {
		return nil, t.notRemembered(now, err)
	}
	marks := []mark{markOf(id.sandbox, id.key)}
	if life != "" {
		marks = append(marks, id.life(life))
	}
	if t.memory.has(marks[0], now) {
		if life != "" && t.memory.has(marks[1], now) {
			return nil, nil
		}
		return nil, &sandbox.Error{Kind: sandbox.KindOutcomeUnknown, Outcome: sandbox.OutcomeUnknown, Reason: sandbox.ReasonRequestKey,
			Message: "the call with this request key has been begun, and its answer is not kept"}
	}
	var all []written
	// The life first: alone it means nothing.
	for _, m := range slices.Backward(marks) {
		at, err := t.memory.add(m, now)
		if err != nil {
			t.forget(all)
			return nil, t.notRemembered(now, err)
		}
		all = append(all, written{m, at})
	}
	return all, nil
}

func (t *TenantKeys) forget(all []written) {
	for _, w := range all {
		t.memory.remove(w.mark, w.at)
	}
}

func (t *TenantKeys) notRemembered(now time.Time, err error) error {
	e := &sandbox.Error{Kind: sandbox.KindResourceExhausted, Outcome: sandbox.OutcomeNone, Reason: sandbox.ReasonRequestKey,
		Limit: sandbox.Some(int64(t.cfg.MaxRemembered)), RetryAfter: time.Minute, Err: err,
		Message: "the request key cannot be remembered: " + err.Error()}
	if errors.Is(err, errFull) {
		e.RetryAfter = t.memory.roomIn(now)
	}
	return e
}

// load reads the pages of an earlier process, once.
func (t *TenantKeys) load(now time.Time) error {
	if t.loaded {
		return nil
	}
	if t.closed {
		return os.ErrClosed
	}
	if err := t.memory.load(now); err != nil {
		t.memory.close()
		t.memory.pages = nil
		return err
	}
	t.loaded = true
	return nil
}

// Has tells whether a key is that of a call that runs or whose answer is kept.
func (t *TenantKeys) Has(sandboxName, key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls[ident{sandboxName, key}] != nil
}

// Undone says that the work was refused before it began: the key is as good as
// new. Whoever has the call still gets the refusal.
func (c *Call) Undone() {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.calls[c.id] != c {
		return
	}
	delete(t.calls, c.id)
	t.forget(c.written)
}

// Done says that the work has ended with an answer of about so many bytes,
// which is kept from now on, for a while.
func (c *Call) Done(size int64) {
	t := c.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	c.size, c.ended = size, time.Now()
	t.kept.add(c)
	for over := t.kept.over(t.cfg); over != nil; over = t.kept.over(t.cfg) {
		delete(t.calls, over.id)
	}
	t.watch()
}

// watch has old answers go when it is time; the caller holds the lock.
func (t *TenantKeys) watch() {
	if t.kept.timer != nil || t.kept.oldest() == nil {
		return
	}
	t.kept.timer = time.AfterFunc(t.cfg.Answers-time.Since(t.kept.oldest().ended), t.expire)
}

func (t *TenantKeys) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.timer = nil
	if t.closed {
		return
	}
	for c := t.kept.oldest(); c != nil && time.Since(c.ended) >= t.cfg.Answers; c = t.kept.oldest() {
		delete(t.calls, t.kept.takeOldest().id)
	}
	t.watch()
}

func (t *TenantKeys) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.loaded = true, false
	if t.kept.timer != nil {
		t.kept.timer.Stop()
	}
	t.calls, t.kept = make(map[ident]*Call), answers{}
	t.memory.close()
	t.memory.pages = nil
}
