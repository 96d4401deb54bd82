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
	"errors"
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

	table  *Table
	owner  Owner
	source sandbox.Source // read
	sink   sandbox.Sink   // write
	digest bool           // write: the mint asked for one
	size   sandbox.Optional[int64]
	ctx    context.Context // ends when the work shall stop
	cancel context.CancelCauseFunc
	key    tokenKey
	expiry *time.Timer // of the token
	retain *time.Timer // of the outcome; guarded by the table's lock

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
}

// Source returns what a read transfer sends.
func (t *Transfer) Source() sandbox.Source { return t.source }

// Sink returns where a write transfer's bytes go.
func (t *Transfer) Sink() sandbox.Sink { return t.sink }

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

// Wait waits for the end and returns the outcome or the error that ended it.
// When ctx ends first it returns a cancelled error and nothing else happens.
func (t *Transfer) Wait(ctx context.Context) (Outcome, error) {
	select {
	case <-t.done:
	case <-ctx.Done():
		return Outcome{}, sandbox.Cancelled(ctx, "transfer_result", "")
	}
	return t.fetch()
}

// Commit asks for exactly bytes bytes to be made visible and waits for it. It
// may come before the data. Repeated with the same count it gives the same
// answer; with another it is [sandbox.KindInvalidParams]. When ctx ends
// before the rename the transfer is aborted.
func (t *Transfer) Commit(ctx context.Context, c sandbox.Commit) (Outcome, error) {
	const op = "transfer_commit"
	if err := t.Ask(c); err != nil {
		return Outcome{}, err
	}
	if t.size.Known && t.size.Value != c.Bytes {
		t.end(Failed, Outcome{}, &sandbox.Error{Kind: sandbox.KindTruncated, Op: op,
			Bytes: sandbox.Some(c.Bytes), Expected: t.size})
	}
	select {
	case <-t.done:
		return t.fetch()
	case <-ctx.Done():
	}
	t.stop(&sandbox.Error{Kind: sandbox.KindAborted, Op: op, Outcome: sandbox.OutcomeNone, Message: "the commit was cancelled"})
	<-t.done
	if out, err := t.fetch(); err == nil {
		return out, nil
	}
	return Outcome{}, sandbox.Cancelled(ctx, op, "")
}

// Ask records what a commit asks for and does not wait. The first one counts:
// a later one must ask for the same, or is [sandbox.KindInvalidParams]. Commit
// asks by itself; who takes requests one after the other and lets them run
// side by side asks first, so that the first to arrive is the first to ask.
func (t *Transfer) Ask(c sandbox.Commit) error {
	const op = "transfer_commit"
	if t.Direction == Read {
		return &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: op, Message: "a read has no commit"}
	}
	if c.SHA256 != "" && !t.digest {
		return &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: op, Message: "sha256 needs digest at the mint"}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.commit != nil {
		// A repeated commit need not say the digest again, but may not name
		// one that was not compared.
		if c.Bytes != t.commit.Bytes || c.SHA256 != "" && c.SHA256 != t.commit.SHA256 {
			return &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: "transfer_commit", Message: "another commit of this transfer named another count or digest"}
		}
		return nil
	}
	t.commit = &c
	if !t.size.Known || t.size.Value == c.Bytes {
		t.notify()
	}
	return nil
}

// Abort ends the transfer unless its commit has begun: then it waits for the
// verdict. A transfer that is done is [sandbox.KindConflict]; one that failed
// already is no error.
func (t *Transfer) Abort(ctx context.Context) error {
	t.mu.Lock()
	committing := t.state == Committing
	t.mu.Unlock()
	if !committing {
		t.end(Aborted, Outcome{}, &sandbox.Error{Kind: sandbox.KindAborted, Op: "transfer_abort", Outcome: sandbox.OutcomeNone})
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return sandbox.Cancelled(ctx, "transfer_abort", "")
	}
	if _, err := t.fetch(); err != nil {
		return nil
	}
	return &sandbox.Error{Kind: sandbox.KindConflict, Op: "transfer_abort", Message: "the transfer is done"}
}

// stop ends the transfer with cause, but lets a commit that is past its
// rename run to its end.
func (t *Transfer) stop(cause error) {
	// The end comes first: the context would have the sink or source end by
	// itself, as cancelled, and that would be the outcome.
	t.end(Aborted, Outcome{}, cause)
	t.cancel(cause)
}

func (t *Transfer) fetch() (Outcome, error) {
	t.mu.Lock()
	t.fetched = true
	out, err := t.outcome, t.err
	t.mu.Unlock()
	t.table.touch()
	return out, err
}

// end ends the transfer unless it has ended or is being committed.
func (t *Transfer) end(to State, out Outcome, err error) {
	t.mu.Lock()
	if t.state.Ended() || t.state == Committing {
		t.mu.Unlock()
		return
	}
	t.finish(to, out, err)
}

// settle ends a transfer that is being committed.
func (t *Transfer) settle(to State, out Outcome, err error) {
	t.mu.Lock()
	t.finish(to, out, err)
}

// ops are what errors call a transfer by its direction.
var ops = [...]string{Read: "read_file_stream", Write: "write_file_stream"}

// named says in an error whose it is, where its finder did not know.
func (t *Transfer) named(err error) error {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return err
	}
	with := *e
	if with.Op == "" || with.Op == "transfer" {
		with.Op = ops[t.Direction]
	}
	if with.Path == "" {
		with.Path = t.owner.Path
	}
	return &with
}

// finish is the only door to an end. It releases the descriptors, records the
// outcome and only then wakes the pump, which closes its socket. The caller
// holds the lock; finish releases it.
func (t *Transfer) finish(to State, out Outcome, err error) {
	t.set(to)
	interrupt := t.interrupt
	t.mu.Unlock()

	t.expiry.Stop()
	if t.Direction == Write && err != nil {
		err = t.sink.Abort(err)
	}
	if t.Direction == Read {
		t.source.Close()
	}
	t.cancel(context.Canceled)

	t.mu.Lock()
	t.outcome, t.err, t.endedAt = out, t.named(err), time.Now()
	close(t.done)
	t.mu.Unlock()
	if interrupt != nil {
		interrupt()
	}
	t.table.ended(t)
}

// set changes the state; the caller holds the lock.
func (t *Transfer) set(to State) {
	t.state = to
	t.notify()
}

// notify wakes everybody who waits for a change; the caller holds the lock.
func (t *Transfer) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
	if t.interrupt != nil && t.commit != nil && t.state == Streaming {
		t.interrupt()
	}
}

func withBytes(err error, n int64) error {
	e := *sandbox.AsError("read_file_stream", "", err)
	if !e.Bytes.Known {
		e.Bytes = sandbox.Some(n)
	}
	return &e
}
