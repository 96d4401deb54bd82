package transfer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/sandbox"
)

// WriteOptions are what a write's mint fixed.
type WriteOptions struct {
	// Digest allows the commit to name a SHA-256.
	Digest bool
	// Durable is told to the pump: the file will be synced to its disk.
	Durable bool
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
	t := &Transfer{Direction: Write, digest: opts.Digest, durable: opts.Durable, size: opts.Size}
	return tb.mint(ctx, owner, t, func(ctx context.Context, t *Transfer) (err error) {
		t.sink, err = open(ctx)
		return err
	})
}

func (tb *Table) mint(ctx context.Context, owner Owner, t *Transfer, open func(context.Context, *Transfer) error) (*Transfer, string, error) {
	if err := tb.reserve(owner.Tenant); err != nil {
		return nil, "", err
	}
	t.ID, t.table, t.owner, t.mintedAt = uuid.NewString(), tb, owner, time.Now()
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
	t.expires = time.Now().Add(tb.cfg.TokenTTL)
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
		return exhausted("too many transfers at once", tb.cfg.MaxLive)
	}
	if tn.tokens >= tb.cfg.MaxTokens {
		return exhausted("too many transfers wait for their connections", tb.cfg.MaxTokens)
	}
	tn.live++
	tn.tokens++
	return nil
}

func exhausted(what string, limit int) *sandbox.Error {
	return &sandbox.Error{Kind: sandbox.KindResourceExhausted, Op: "mint", Message: what,
		Limit: sandbox.Some(int64(limit)), RetryAfter: time.Second}
}

func (tb *Table) unreserve(name string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.tenants[name].live--
	tb.tenants[name].tokens--
	tb.broadcast()
}

func (tb *Table) register(t *Transfer) bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if tb.closed {
		return false
	}
	tb.tokens[t.key] = t
	tb.known[t.key] = struct{}{}
	tb.ids[t.ID] = t
	return true
}
