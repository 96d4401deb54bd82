// Package transfer holds single-use tokens and the life of a transfer, one
// small state machine:
//
//	minted ─▶ claimed ─▶ streaming ─▶ (committing) ─▶ done | failed | aborted
//	   └────▶ expired
//
// A transfer ends once. Its outcome is recorded before any socket is closed
// and kept for a while, so that whoever lost a connection can ask.
//
// What does not belong here: bytes and sockets (package dataport pumps them)
// and wire formats (package rpc). The package sees a connection only as
// something that can be interrupted.
package transfer

import (
	"context"
	"sync"
	"time"

	"github.com/controld/controld/sandbox"
)

// State is where a transfer stands.
type State int

// The states of a transfer. The last four are ends.
const (
	Minted State = iota
	Claimed
	Streaming
	Committing
	Done
	Failed
	Aborted
	Expired
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"minted", "claimed", "streaming", "committing", "done", "failed", "aborted", "expired"}[s]
}

// Ended tells whether s is an end.
func (s State) Ended() bool { return s >= Done }

// Direction is which way the bytes go.
type Direction int

// The directions, from the client's point of view.
const (
	Read Direction = iota
	Write
)

// Outcome is what a transfer that ended well is known by.
type Outcome struct {
	// Bytes were handed to the socket (read) or committed (write).
	Bytes int64
	// ETag of the new version (write).
	ETag string
	// Verdict on the bytes (read).
	Verdict sandbox.ReadVerdict
}

// Transfer is one file on its way. Methods may be called from any goroutine;
// Start to Finish belong to the one that pumps its bytes.
type Transfer struct {
	// ID is public, a UUID. It opens nothing.
	ID        string
	Direction Direction

	table    *Table
	owner    Owner          // its group is guarded by mu
	source   sandbox.Source // read
	sink     sandbox.Sink   // write
	digest   bool           // write: the mint asked for one
	durable  bool           // write: it will be synced
	size     sandbox.Optional[int64]
	ctx      context.Context // ends when the work shall stop
	cancel   context.CancelCauseFunc
	key      tokenKey   // guarded by the table's lock
	past     []tokenKey // of tokens before it, the last ones; likewise
	mintedAt time.Time
	expiry   *time.Timer // of the token
	expires  time.Time   // the token; guarded by the table's lock
	retain   *time.Timer // of the outcome; guarded by the table's lock

	mu        sync.Mutex
	state     State
	commit    *sandbox.Commit
	changed   chan struct{} // closed and replaced when commit or state change
	interrupt func()        // breaks the pump's blocking call
	done      chan struct{} // closed when outcome and err stand
	outcome   Outcome
	err       error
	endedAt   time.Time
	fetched   bool
	waiting   map[any]func() // who wants to know of the end
}

// Source returns what a read transfer sends.
func (t *Transfer) Source() sandbox.Source { return t.source }

// Sink returns where a write transfer's bytes go.
func (t *Transfer) Sink() sandbox.Sink { return t.sink }

// Tenant is whose transfer it is.
func (t *Transfer) Tenant() string { return t.owner.Tenant }

// Durable tells whether a write will be synced to its disk.
func (t *Transfer) Durable() bool { return t.durable }

// Context ends when the transfer shall stop: its cause is the reason.
func (t *Transfer) Context() context.Context { return t.ctx }

// Settled is closed when the outcome stands.
func (t *Transfer) Settled() <-chan struct{} { return t.done }

// State returns where the transfer stands.
func (t *Transfer) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// Start takes a claimed transfer into streaming. interrupt is called, from
// any goroutine, whenever the pump shall look at [Transfer.Wanted] again: it
// must break a blocking read or write, at once or the next one. Start returns
// false when the transfer ended meanwhile.
func (t *Transfer) Start(interrupt func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != Claimed {
		return false
	}
	t.interrupt = interrupt
	t.set(Streaming)
	return true
}

// Wanted tells the pump of a write how many bytes the commit named, if there
// is one yet, and whether the transfer has ended meanwhile.
func (t *Transfer) Wanted() (bytes sandbox.Optional[int64], ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.commit != nil {
		bytes = sandbox.Some(t.commit.Bytes)
	}
	return bytes, t.state.Ended()
}

// AwaitCommit waits until a commit names a count or the transfer ends; after
// stall without either it returns false.
func (t *Transfer) AwaitCommit(stall time.Duration) bool {
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for {
		t.mu.Lock()
		settled, changed := t.commit != nil || t.state.Ended(), t.changed
		t.mu.Unlock()
		if settled {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}

// Lent ends a read whose file was handed over and has come back: nothing was
// sent from here, and what became of it is known to whoever had it.
func (t *Transfer) Lent() { t.end(Done, Outcome{}, nil) }

// FinishRead ends a read: sent bytes were handed to the socket, and cause is
// what stopped it short, if anything did.
func (t *Transfer) FinishRead(sent int64, cause error) {
	verdict, err := t.source.Finish(sent)
	if err == nil && cause != nil {
		err = cause
	}
	if err != nil {
		t.end(Failed, Outcome{}, withBytes(err, sent))
		return
	}
	t.end(Done, Outcome{Bytes: sent, Verdict: verdict}, nil)
}

// FinishWrite makes the bytes that a commit named visible. It is called when
// all of them have reached the sink.
func (t *Transfer) FinishWrite() {
	t.mu.Lock()
	if t.state != Streaming || t.commit == nil {
		t.mu.Unlock()
		return
	}
	commit := *t.commit
	t.set(Committing)
	t.mu.Unlock()

	info, err := t.sink.Commit(t.ctx, commit)
	switch {
	case err == nil:
		t.settle(Done, Outcome{Bytes: info.Bytes, ETag: info.ETag}, nil)
	case t.ctx.Err() != nil && sandbox.KindOf(err) == sandbox.KindCancelled:
		t.settle(Aborted, Outcome{}, context.Cause(t.ctx))
	default:
		t.settle(Failed, Outcome{}, err)
	}
}

// Fail ends the transfer with an error: what the pump found.
func (t *Transfer) Fail(err error) { t.end(Failed, Outcome{}, err) }
