package transfer

import (
	"crypto/sha256"
	"errors"
	"sync"
	"time"

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
	// MaxTokens is how many of those may wait for their connection, each with
	// an open file (1,024).
	MaxTokens int
	// Ended, where not nil, is told of every transfer that has ended. It must
	// not wait.
	Ended func(Report)
	// FetchGrace is how long a drain waits for a verdict to be fetched (5 s).
	FetchGrace time.Duration
}

// What a Config has where it names nothing else; see its fields.
const (
	MaxKept    = 1024
	FetchGrace = 5 * time.Second
)

func (c *Config) fill() {
	d := sandbox.DefaultLimits()
	if c.TokenTTL <= 0 {
		c.TokenTTL = d.TokenTTL
	}
	if c.Kept <= 0 {
		c.Kept = d.KeptOutcomes
	}
	if c.MaxKept <= 0 {
		c.MaxKept = MaxKept
	}
	if c.MaxLive <= 0 {
		c.MaxLive = 1024
	}
	if c.MaxTokens <= 0 {
		c.MaxTokens = 1024
	}
	if c.FetchGrace <= 0 {
		c.FetchGrace = FetchGrace
	}
}

// Report tells of a transfer that has ended.
type Report struct {
	ID        string
	Direction Direction
	Owner     Owner
	// Bytes is how many were sent or committed; of a failure, as far as it is
	// known.
	Bytes int64
	// Err is nil where the transfer is done.
	Err error
	// Took is the time since the mint.
	Took time.Duration
}

// Owner is whom a transfer belongs to.
type Owner struct {
	// Tenant and Sandbox may ask for the outcome; nobody else.
	Tenant, Sandbox string
	// Who and Source name the token and the place that it came from; they are
	// told in reports alone.
	Who, Source string
	// Group is the connection that minted; when it closes, what it minted
	// is aborted.
	Group *Group
	// Keyed lets the transfer be minted again, see [Table.Renew], and live on
	// without a group, also from the start, while its token is not taken.
	Keyed bool
	// Path is what the client calls the file; errors name it.
	Path string
}

// Table holds all transfers of a daemon.
type Table struct {
	cfg Config

	mu      sync.Mutex
	closed  bool
	changed chan struct{} // closed and replaced when anything changes
	tokens  map[tokenKey]*Transfer
	known   map[tokenKey]struct{} // every token of a transfer in ids, spent or not
	ids     map[string]*Transfer
	tenants map[string]*tenant
}

// tenant is the share of one tenant in the table.
type tenant struct {
	live   int
	tokens int         // of those that are live
	kept   []*Transfer // ended ones, oldest first
}

// burn forgets a token; the caller holds the lock. It returns whether it was
// there.
func (tb *Table) burn(t *Transfer) bool {
	held := tb.tokens[t.key] == t
	if held {
		delete(tb.tokens, t.key)
		tb.tenants[t.owner.Tenant].tokens--
	}
	return held
}

// NewTable returns an empty table.
func NewTable(cfg Config) *Table {
	cfg.fill()
	return &Table{
		cfg:     cfg,
		changed: make(chan struct{}),
		tokens:  make(map[tokenKey]*Transfer),
		known:   make(map[tokenKey]struct{}),
		ids:     make(map[string]*Transfer),
		tenants: make(map[string]*tenant),
	}
}

// TokenTTL is how long a token waits for its connection.
func (tb *Table) TokenTTL() time.Duration { return tb.cfg.TokenTTL }

// ErrNeverMinted is wrapped in the error of a claim whose token belongs to no
// transfer that is remembered: it was guessed, or is old.
var ErrNeverMinted = errors.New("no transfer has this token")

// Claim takes a token, once: whoever comes second gets
// [sandbox.KindTokenInvalid], as does everybody else who has none. session is
// that of the stream it was presented on, nil on the data port.
func (tb *Table) Claim(token string, session any) (*Transfer, error) {
	return tb.ClaimOf(token, session, nil)
}

// ClaimOf is like [Table.Claim] for a peer to whom not every tenant's transfers
// are open, by mine. A token of somebody else's is answered like any other
// wrong one, and stays good.
func (tb *Table) ClaimOf(token string, session any, mine func(tenant string) bool) (*Transfer, error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	t, err := tb.held(token, session, mine)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	tb.burn(t)
	if t.state != Minted {
		return nil, tokenInvalid()
	}
	t.expiry.Stop()
	t.set(Claimed)
	return t, nil
}

// Look returns the transfer that [Table.ClaimOf] would give, and leaves the
// token where it is: it may be gone in the next moment.
func (tb *Table) Look(token string, session any, mine func(tenant string) bool) (*Transfer, error) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	return tb.held(token, session, mine)
}

// held finds the transfer of a token that is good here; the caller holds the
// lock.
func (tb *Table) held(token string, session any, mine func(tenant string) bool) (*Transfer, error) {
	key := sha256.Sum256([]byte(token))
	t := tb.tokens[key]
	if t == nil {
		return nil, tb.refused(key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session() != session || mine != nil && !mine(t.owner.Tenant) {
		return nil, tb.refused(key)
	}
	return t, nil
}

// refused is the answer to a token that opens nothing; the caller holds the lock.
func (tb *Table) refused(key tokenKey) error {
	err := tokenInvalid()
	if _, known := tb.known[key]; !known {
		err.Err = ErrNeverMinted
	}
	return err
}

// session is what the token is bound to; the caller holds the lock.
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
	t.mu.Lock()
	if t.state != Minted || time.Until(t.expires) > 0 {
		t.mu.Unlock() // taken, or given a new one
		tb.mu.Unlock()
		return
	}
	tb.burn(t)
	tb.mu.Unlock()
	expired := tokenInvalid()
	expired.Op = "transfer"
	t.finish(Expired, Outcome{}, expired)
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
	t.mu.Lock()
	g := t.owner.Group
	t.mu.Unlock()
	if g != nil {
		g.remove(t)
	}
	if tb.cfg.Ended != nil {
		tb.cfg.Ended(t.report())
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.burn(t)
	tn := tb.tenants[t.owner.Tenant]
	tn.live--
	tn.kept = append(tn.kept, t)
	if len(tn.kept) > tb.cfg.MaxKept {
		oldest := tn.kept[0]
		delete(tb.ids, oldest.ID)
		tb.unknow(oldest)
		if oldest.retain != nil {
			oldest.retain.Stop() // or its timer would hold it for its whole time
		}
		tn.kept[0] = nil
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
	tb.unknow(t)
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
