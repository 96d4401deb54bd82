package transfer

import (
	"context"

	"github.com/controld/controld/sandbox"
)

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

// AfterEnd has tell called once, when the outcome stands, on the goroutine that
// ended the transfer, which it must not hold up. It returns false, and tell is
// not called, when the outcome stands already. Who is what [Transfer.Forget]
// knows it by, any comparable value.
func (t *Transfer) AfterEnd(who any, tell func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.endedAt.IsZero() {
		return false
	}
	if t.waiting == nil {
		t.waiting = make(map[any]func())
	}
	t.waiting[who] = tell
	return true
}

// Forget takes an [Transfer.AfterEnd] back, if it is not being told already.
func (t *Transfer) Forget(who any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, who)
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

func (t *Transfer) fetch() (Outcome, error) {
	t.mu.Lock()
	t.fetched = true
	out, err := t.outcome, t.err
	t.mu.Unlock()
	t.table.touch()
	return out, err
}
