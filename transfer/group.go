package transfer

import (
	"sync"

	"github.com/controld/controld/sandbox"
)

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
		if table.leave(t, g) {
			continue
		}
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
