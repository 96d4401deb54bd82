package server

import (
	"sync"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// errorRoom is what the answer to a call of a batch may take at least, beside
// its id: enough for the error that says it does not fit.
const errorRoom = 512

// batch collects the answers to one line and sends them as one.
type batch struct {
	c        *conn
	requests []*rpc.Request

	mu      sync.Mutex
	answers []*rpc.Message
	missing int
	room    int64 // beyond errorRoom for each
}

func newBatch(c *conn, requests []*rpc.Request) *batch {
	b := &batch{c: c, requests: requests, room: c.maxReply() - 2}
	for _, r := range requests {
		if !r.Notify {
			b.missing++
			b.room -= reserved(r) + 1
		}
	}
	return b
}

func (c *conn) maxReply() int64 { return c.s.cfg.Limits.MaxMessageBytes }

func reserved(r *rpc.Request) int64 { return int64(len(r.ID)) + errorRoom }

// put adds an answer; one that does not fit any more is replaced by an error.
func (b *batch) put(slot int, m *rpc.Message) {
	b.mu.Lock()
	r := b.requests[slot]
	if extra := m.Size() - reserved(r); extra > b.room {
		m.Drop()
		m = rpc.NewError(r.ID, r.Method, "", &sandbox.Error{Kind: sandbox.KindTooLarge,
			Limit: sandbox.Some(b.c.maxReply()), Message: "the answer does not fit into that of its batch"})
	} else if extra > 0 {
		b.room -= extra
	}
	b.answers = append(b.answers, m)
	b.missing--
	last := b.missing == 0
	b.mu.Unlock()
	if last {
		b.c.w.Send(rpc.JoinBatch(b.answers))
	}
}
