package work

import (
	"context"
	"sync"
	"time"

	"github.com/controld/controld/sandbox"
)

// Terms say what becomes of a task for which nobody waits any more.
type Terms struct {
	// Grace is how long it goes on then; with none it is cancelled at once.
	Grace time.Duration
	// Detach lets it go on without that bound.
	Detach bool
}

// Task is work with a context of its own. Whoever waits for it is counted by
// Join and Leave; who made it has joined.
type Task struct {
	of     *Tasks // nil: of none that take any
	terms  Terms
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu      sync.Mutex
	waiting int
	left    int // how often the last one left
	alone   *time.Timer
}

// Done is closed when the work has ended.
func (t *Task) Done() <-chan struct{} { return t.done }

// Cancel has the work end, whoever waits for it.
func (t *Task) Cancel(cause error) { t.cancel(cause) }

// Join counts one more who waits.
func (t *Task) Join() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting++
	if t.alone != nil {
		t.alone.Stop()
	}
}

// Leave counts one less who waits. Behind the last the terms apply.
func (t *Task) Leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting--; t.waiting > 0 || t.terms.Detach {
		return
	}
	if t.terms.Grace <= 0 {
		t.cancel(errAlone)
		return
	}
	t.left++
	left := t.left
	select {
	case <-t.done: // which Run says before it looks for a timer
	default:
		t.alone = time.AfterFunc(t.terms.Grace, func() { t.expire(left) })
	}
}

// errAlone is why a task ends that was left.
var errAlone = &sandbox.Error{Kind: sandbox.KindCancelled, Message: "nobody waited for it any more"}

// expire cancels the task unless somebody came back meanwhile.
func (t *Task) expire(left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == 0 && t.left == left {
		t.cancel(errAlone)
	}
}

// Run does the work, once, and returns when it has ended. A task of Tasks that
// were closed when it was made is done, and Run does nothing.
func (t *Task) Run(f func(context.Context)) {
	if t.of == nil {
		return
	}
	defer t.of.ended(t)
	f(t.ctx)
	close(t.done)
	t.cancel(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alone != nil {
		t.alone.Stop()
	}
}

// Tasks owns tasks and waits for them. The zero value works.
type Tasks struct {
	mu     sync.Mutex
	closed error // why nothing starts any more
	live   map[*Task]struct{}
	all    sync.WaitGroup
}

// New returns a task which its caller has joined, and must run.
func (ts *Tasks) New(terms Terms) *Task {
	t := &Task{terms: terms, done: make(chan struct{}), waiting: 1}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed != nil {
		t.cancel(ts.closed)
		close(t.done)
		return t
	}
	if ts.live == nil {
		ts.live = make(map[*Task]struct{})
	}
	ts.live[t] = struct{}{}
	ts.all.Add(1)
	t.of = ts
	return t
}

func (ts *Tasks) ended(t *Task) {
	ts.mu.Lock()
	delete(ts.live, t)
	ts.mu.Unlock()
	ts.all.Done()
}

// Close has every task end and waits for them. It may be called twice.
func (ts *Tasks) Close(cause error) {
	ts.mu.Lock()
	ts.closed = cause
	for t := range ts.live {
		t.cancel(cause)
	}
	ts.mu.Unlock()
	ts.all.Wait()
}
