package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/controld/controld/sandbox"
)

// stop ends the transfer with cause, but lets a commit that is past its
// rename run to its end.
func (t *Transfer) stop(cause error) {
	// The end comes first: the context would have the sink or source end by
	// itself, as cancelled, and that would be the outcome.
	t.end(Aborted, Outcome{}, cause)
	t.cancel(cause)
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
	waiting := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	for _, tell := range waiting {
		tell()
	}
	if interrupt != nil {
		interrupt()
	}
	t.table.ended(t)
}

// report tells of a transfer whose outcome stands.
func (t *Transfer) report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := Report{ID: t.ID, Direction: t.Direction, Owner: t.owner, Bytes: t.outcome.Bytes, Err: t.err, Took: t.endedAt.Sub(t.mintedAt)}
	var e *sandbox.Error
	if errors.As(t.err, &e) {
		r.Bytes = e.Bytes.Value
	}
	return r
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
