package transfer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/sandbox"
)

// TokenLength is the length of a token: 256 random bits in base64url without
// padding.
const TokenLength = 43

// Config bounds a table. Zero fields take the protocol's defaults.
type Config struct {
	// TokenTTL is how long a token waits for its connection.
	TokenTTL time.Duration
	// Kept is how long an outcome can be asked for.
	Kept time.Duration
	// MaxKept is how many outcomes are kept for a tenant (1,024).
	MaxKept int
	// MaxLive is how many transfers of a tenant may live at once (1,024).
	MaxLive int
	// FetchGrace is how long a drain waits for a verdict to be fetched (5 s).
	FetchGrace time.Duration
}

func (c *Config) fill() {
	d := sandbox.DefaultLimits()
	if c.TokenTTL <= 0 {
		c.TokenTTL = d.TokenTTL
	}
	if c.Kept <= 0 {
		c.Kept = d.KeptOutcomes
	}
	if c.MaxKept <= 0 {
		c.MaxKept = 1024
	}
	if c.MaxLive <= 0 {
		c.MaxLive = 1024
	}
	if c.FetchGrace <= 0 {
		c.FetchGrace = 5 * time.Second
	}
}

// Owner is whom a transfer belongs to.
type Owner struct {
	// Tenant and Sandbox may ask for the outcome; nobody else.
	Tenant, Sandbox string
	// Group is the connection that minted; when it closes, what it minted
	// is aborted.
	Group *Group
	// Path is what the client calls the file; errors name it.
	Path string
}

// Group holds the live transfers of one minting connection.
type Group struct {
	// Session binds the tokens to one multiplexed session; nil binds them to
	// the data port.
	session any

	mu     sync.Mutex
	closed bool
	live   map[*Transfer]struct{}
	table  *Table // nil before the first mint
}

// NewGroup returns a group. A session, any comparable value, binds its tokens
// to the streams of that session; nil leaves them to the data port.
func NewGroup(session any) *Group {
	return &Group{session: session, live: make(map[*Transfer]struct{})}
}

// Close aborts what is live in the group; a commit that has begun its rename
// runs to its end. It does not wait for that. It may be called twice.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	live := make([]*Transfer, 0, len(g.live))
	for t := range g.live {
		live = append(live, t)
	}
	table := g.table
	g.mu.Unlock()
	for _, t := range live {
		t.stop(&sandbox.Error{Kind: sandbox.KindAborted, Op: "transfer", Outcome: sandbox.OutcomeNone,
			Message: "the connection that minted it is gone"})
	}
	if table != nil {
		table.touch() // a drain waits for no verdict of this group any more
	}
}

func (g *Group) gone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *Group) add(t *Transfer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.live[t] = struct{}{}
	g.table = t.table
	return true
}

func (g *Group) remove(t *Transfer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, t)
}

// Table holds all transfers of a daemon.
type Table struct {
	cfg Config

	mu      sync.Mutex
	closed  bool
	changed chan struct{} // closed and replaced when anything changes
	tokens  map[tokenKey]*Transfer
	ids     map[string]*Transfer
	tenants map[string]*tenant
}

// tenant is the share of one tenant in the table.
type tenant struct {
	live int
	kept []*Transfer // ended ones, oldest first
}

// NewTable returns an empty table.
func NewTable(cfg Config) *Table {
	cfg.fill()
	return &Table{
		cfg:     cfg,
		changed: make(chan struct{}),
		tokens:  make(map[tokenKey]*Transfer),
		ids:     make(map[string]*Transfer),
		tenants: make(map[string]*tenant),
	}
}

// TokenTTL is how long a token waits for its connection.
func (tb *Table) TokenTTL() time.Duration { return tb.cfg.TokenTTL }

// WriteOptions are what a write's mint fixed.
type WriteOptions struct {
	// Digest allows the commit to name a SHA-256.
	Digest bool
	// Size is the count a commit must name, where known.
	Size sandbox.Optional[int64]
}

// MintRead opens a source and returns the transfer that will send it with its
// token. open gets a context that ends with the transfer; ctx governs the
// open alone. Over the tenant's limit it is [sandbox.KindResourceExhausted].
func (tb *Table) MintRead(ctx context.Context, owner Owner, open func(context.Context) (sandbox.Source, error)) (*Transfer, string, error) {
	return tb.mint(ctx, owner, &Transfer{Direction: Read}, func(ctx context.Context, t *Transfer) (err error) {
		t.source, err = open(ctx)
		return err
	})
}

// MintWrite opens a sink and returns the transfer that will fill it with its
// token; see [Table.MintRead].
func (tb *Table) MintWrite(ctx context.Context, owner Owner, opts WriteOptions, open func(context.Context) (sandbox.Sink, error)) (*Transfer, string, error) {
	t := &Transfer{Direction: Write, digest: opts.Digest, size: opts.Size}
	return tb.mint(ctx, owner, t, func(ctx context.Context, t *Transfer) (err error) {
		t.sink, err = open(ctx)
		return err
	})
}

func (tb *Table) mint(ctx context.Context, owner Owner, t *Transfer, open func(context.Context, *Transfer) error) (*Transfer, string, error) {
	if err := tb.reserve(owner.Tenant); err != nil {
		return nil, "", err
	}
	t.ID, t.table, t.owner = uuid.NewString(), tb, owner
	t.changed, t.done = make(chan struct{}), make(chan struct{})
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { t.cancel(context.Cause(ctx)) })
	if err := open(t.ctx, t); err != nil {
		detach()
		t.cancel(context.Canceled)
		tb.unreserve(owner.Tenant)
		return nil, "", err
	}
	var token string
	token, t.key = newToken()
	t.expiry = time.AfterFunc(tb.cfg.TokenTTL, func() { tb.expire(t) })
	if !detach() || !tb.register(t) {
		t.drop()
		tb.unreserve(owner.Tenant)
		return nil, "", sandbox.Cancelled(ctx, "mint", "")
	}
	if owner.Group != nil && !owner.Group.add(t) {
		t.end(Aborted, Outcome{}, sandbox.Cancelled(ctx, "mint", ""))
		return nil, "", sandbox.Cancelled(ctx, "mint", "")
	}
	return t, token, nil
}

// drop releases a transfer that was never handed out.
func (t *Transfer) drop() {
	t.expiry.Stop()
	if t.source != nil {
		t.source.Close()
	}
	if t.sink != nil {
		t.sink.Abort(context.Canceled)
	}
	t.cancel(context.Canceled)
}

// tokenKey is the hash by which a token is found.
type tokenKey [sha256.Size]byte

// newToken returns a token and the key it is found by: its hash, so that a
// look-up takes the same time whatever was guessed right.
func newToken() (string, tokenKey) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails, see crypto/rand
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	return token, sha256.Sum256([]byte(token))
}

func (tb *Table) reserve(name string) error {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if tb.closed {
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "mint", Reason: sandbox.ReasonDraining, Outcome: sandbox.OutcomeNone}
	}
	tn := tb.tenants[name]
	if tn == nil {
		tn = &tenant{}
		tb.tenants[name] = tn
	}
	if tn.live >= tb.cfg.MaxLive {
		return &sandbox.Error{Kind: sandbox.KindResourceExhausted, Op: "mint", Message: "too many transfers at once",
			Limit: sandbox.Some(int64(tb.cfg.MaxLive)), RetryAfter: time.Second}
	}
	tn.live++
	return nil
}

func (tb *Table) unreserve(name string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.tenants[name].live--
	tb.broadcast()
}

func (tb *Table) register(t *Transfer) bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if tb.closed {
		return false
	}
	tb.tokens[t.key] = t
	tb.ids[t.ID] = t
	return true
}

// Claim takes a token, once: whoever comes second gets
// [sandbox.KindTokenInvalid], as does everybody else who has none. session is
// that of the stream it was presented on, nil on the data port.
func (tb *Table) Claim(token string, session any) (*Transfer, error) {
	key := sha256.Sum256([]byte(token))
	tb.mu.Lock()
	t := tb.tokens[key]
	if t == nil || t.session() != session {
		tb.mu.Unlock()
		return nil, tokenInvalid()
	}
	delete(tb.tokens, key)
	tb.mu.Unlock()

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != Minted {
		return nil, tokenInvalid()
	}
	t.expiry.Stop()
	t.set(Claimed)
	return t, nil
}

func (t *Transfer) session() any {
	if t.owner.Group == nil {
		return nil
	}
	return t.owner.Group.session
}

func tokenInvalid() *sandbox.Error {
	return &sandbox.Error{Kind: sandbox.KindTokenInvalid, Op: "claim", Message: "token is unknown, used or expired"}
}

func (tb *Table) expire(t *Transfer) {
	tb.mu.Lock()
	held := tb.tokens[t.key] == t
	delete(tb.tokens, t.key)
	tb.mu.Unlock()
	if held {
		expired := tokenInvalid()
		expired.Op = "transfer"
		t.end(Expired, Outcome{}, expired)
	}
}

// Find returns a live or kept transfer of this tenant and sandbox by its id;
// any other id is [sandbox.KindNotFound].
func (tb *Table) Find(tenant, sandboxName, id string) (*Transfer, error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	t := tb.ids[id]
	if t == nil || t.owner.Tenant != tenant || t.owner.Sandbox != sandboxName {
		return nil, &sandbox.Error{Kind: sandbox.KindNotFound, Op: "transfer", Message: "no such transfer"}
	}
	return t, nil
}

// ended moves a transfer from the live ones to the kept ones.
func (tb *Table) ended(t *Transfer) {
	if t.owner.Group != nil {
		t.owner.Group.remove(t)
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	delete(tb.tokens, t.key)
	tn := tb.tenants[t.owner.Tenant]
	tn.live--
	tn.kept = append(tn.kept, t)
	if len(tn.kept) > tb.cfg.MaxKept {
		delete(tb.ids, tn.kept[0].ID)
		tn.kept = tn.kept[1:]
	}
	if !tb.closed {
		t.retain = time.AfterFunc(tb.cfg.Kept, func() { tb.discard(t) })
	}
	tb.broadcast()
}

func (tb *Table) discard(t *Transfer) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	delete(tb.ids, t.ID)
	tn := tb.tenants[t.owner.Tenant]
	for i, k := range tn.kept {
		if k == t {
			tn.kept = append(tn.kept[:i:i], tn.kept[i+1:]...)
			break
		}
	}
}

func (tb *Table) touch() {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.broadcast()
}

// broadcast wakes the drain; the caller holds the lock.
func (tb *Table) broadcast() {
	close(tb.changed)
	tb.changed = make(chan struct{})
}

// Live returns how many transfers have not ended.
func (tb *Table) Live() int {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	n := 0
	for _, tn := range tb.tenants {
		n += tn.live
	}
	return n
}

// Drain waits until no transfer lives and each verdict was fetched, its owner
// is gone or [Config.FetchGrace] has passed; when ctx ends first it returns
// ctx's error.
func (tb *Table) Drain(ctx context.Context) error {
	for {
		tb.mu.Lock()
		wait, idle := tb.unfetched()
		changed := tb.changed
		tb.mu.Unlock()
		if idle {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// unfetched tells how long the youngest unfetched verdict will be waited for
// and whether there is nothing left to wait for. The caller holds the lock.
func (tb *Table) unfetched() (wait time.Duration, idle bool) {
	idle = true
	for _, tn := range tb.tenants {
		if tn.live > 0 {
			return time.Hour, false
		}
		for _, t := range tn.kept {
			t.mu.Lock()
			left := tb.cfg.FetchGrace - time.Since(t.endedAt)
			if !t.fetched && left > 0 && (t.owner.Group == nil || !t.owner.Group.gone()) {
				wait, idle = max(wait, left), false
			}
			t.mu.Unlock()
		}
	}
	return wait, idle
}

// Close ends every live transfer with err, waits for commits that are past
// their rename, and stops all timers. Later mints are refused.
func (tb *Table) Close(err error) {
	tb.mu.Lock()
	tb.closed = true
	all := make([]*Transfer, 0, len(tb.ids))
	for _, t := range tb.ids {
		all = append(all, t)
	}
	clear(tb.tokens)
	tb.mu.Unlock()
	for _, t := range all {
		t.stop(err)
		<-t.done
		tb.mu.Lock()
		if t.retain != nil {
			t.retain.Stop()
		}
		tb.mu.Unlock()
	}
}
