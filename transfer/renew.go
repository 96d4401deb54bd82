package transfer

import (
	"time"

	"github.com/controld/controld/sandbox"
)

// Renew is the mint of a keyed transfer once more: the transfer is g's from now
// on, under a new token with all of its time, and the old token is dead. One
// that was claimed or has ended is [sandbox.KindConflict].
func (tb *Table) Renew(t *Transfer, g *Group) (string, error) {
	token, key := newToken()
	old, ok := tb.rename(t, key, g)
	if !ok {
		return "", &sandbox.Error{Kind: sandbox.KindConflict, Op: ops[t.Direction], Path: t.owner.Path,
			Message: "the transfer of this request key has been opened or has ended"}
	}
	if old != nil && old != g {
		old.remove(t)
	}
	if !g.add(t) {
		tb.leave(t, g)
		return "", &sandbox.Error{Kind: sandbox.KindCancelled, Op: ops[t.Direction], Path: t.owner.Path}
	}
	return token, nil
}

// rename gives a transfer that nobody has claimed another token and group; it
// returns the group that it had.
func (tb *Table) rename(t *Transfer, key tokenKey, g *Group) (old *Group, ok bool) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if tb.closed || t.state != Minted {
		return nil, false
	}
	tb.burn(t)
	if t.past = append(t.past, t.key); len(t.past) > pastKept {
		delete(tb.known, t.past[0])
		t.past = t.past[1:]
	}
	t.key = key
	tb.tokens[key], tb.known[key] = t, struct{}{}
	tb.tenants[t.owner.Tenant].tokens++
	t.expires = time.Now().Add(tb.cfg.TokenTTL)
	t.expiry.Reset(tb.cfg.TokenTTL)
	old, t.owner.Group = t.owner.Group, g
	return old, true
}

// leave lets a keyed transfer that nobody has claimed outlive its group, until
// its time is up or it is renewed; its token dies. It is true as well when the
// transfer is another group's by now.
func (tb *Table) leave(t *Transfer, g *Group) bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owner.Group != g {
		return true
	}
	if !t.owner.Keyed || t.state != Minted {
		return false
	}
	tb.burn(t)
	t.owner.Group = nil
	return true
}

// pastKept is how many dead tokens of a transfer are known as such.
const pastKept = 8

// unknow forgets the tokens of a transfer; the caller holds the lock.
func (tb *Table) unknow(t *Transfer) {
	delete(tb.known, t.key)
	for _, key := range t.past {
		delete(tb.known, key)
	}
}
