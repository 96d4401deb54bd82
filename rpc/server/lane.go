package server

import (
	"sync"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// lane decides which calls of a peer run. So many run at once, more wait in
// order of arrival, up to a number and an amount of text. Calls about
// transfers have lanes of their own and never wait behind the others.
type lane struct {
	limits *sandbox.Limits

	mu      sync.Mutex
	running int
	queue   []*call
	text    int64 // of calls that wait, for a place or for the budget
	waiting int   // results and commits
	aborts  int
}

// enter tells whether to start the call now; if not, it was queued or err
// says why it was refused.
func (l *lane) enter(cl *call) (start bool, err *sandbox.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch cl.r.Method {
	case rpc.MethodTransferResult, rpc.MethodTransferCommit:
		return l.count(cl, &l.waiting)
	case rpc.MethodTransferAbort:
		return l.count(cl, &l.aborts)
	}
	wait := l.running >= l.limits.MaxInflight
	if wait && len(l.queue) >= l.limits.MaxQueued {
		return false, exhausted("too many calls wait", int64(l.limits.MaxQueued))
	}
	if wait || cl.owed > 0 {
		if l.text+int64(cl.r.Size) > l.limits.MaxMessageBytes {
			return false, exhausted("too much text waits", l.limits.MaxMessageBytes)
		}
		l.text += int64(cl.r.Size)
		cl.texted = true
	}
	if wait {
		l.queue = append(l.queue, cl)
		return false, nil
	}
	l.running++
	cl.running = true
	return true, nil
}

// count admits a call that is bounded by a number alone.
func (l *lane) count(cl *call, n *int) (bool, *sandbox.Error) {
	if *n >= l.limits.MaxWaitingTransfers {
		return false, exhausted("too many calls wait for transfers", int64(l.limits.MaxWaitingTransfers))
	}
	*n++
	cl.counted = n
	return true, nil
}

// exhausted is the answer to a call over a limit of its connection.
func exhausted(what string, limit int64) *sandbox.Error {
	return &sandbox.Error{Kind: sandbox.KindResourceExhausted, Message: what,
		Limit: sandbox.Some(limit), RetryAfter: 100 * time.Millisecond}
}

// leave frees the place of a call and returns the one that takes it.
func (l *lane) leave(cl *call) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.untext(cl)
	if cl.counted != nil {
		*cl.counted--
		cl.counted = nil
	}
	if !cl.running {
		return nil
	}
	cl.running = false
	if len(l.queue) == 0 {
		l.running--
		return nil
	}
	next := l.queue[0]
	l.queue[0] = nil
	if l.queue = l.queue[1:]; len(l.queue) == 0 {
		l.queue = nil
	}
	next.running = true
	if next.owed == 0 {
		l.untext(next)
	}
	return next
}

// paid takes the text of a call off what waits.
func (l *lane) paid(cl *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.untext(cl)
}

func (l *lane) untext(cl *call) {
	if cl.texted {
		cl.texted = false
		l.text -= int64(cl.r.Size)
	}
}

// remove takes a call out of the queue; false when it is not there.
func (l *lane) remove(cl *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, q := range l.queue {
		if q == cl {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			l.untext(cl)
			return true
		}
	}
	return false
}

// removeAll takes all queued calls of a connection out.
func (l *lane) removeAll(c *conn) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out, keep []*call
	for _, cl := range l.queue {
		if cl.c == c {
			l.untext(cl)
			out = append(out, cl)
		} else {
			keep = append(keep, cl)
		}
	}
	l.queue = keep
	return out
}
