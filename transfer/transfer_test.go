package transfer_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// fakeSource is a source that counts its closes.
type fakeSource struct {
	closed    atomic.Int32
	finishErr error
	verdict   sandbox.ReadVerdict
}

func (f *fakeSource) Size() (int64, bool)   { return 5, true }
func (f *fakeSource) Length() (int64, bool) { return 5, true }
func (f *fakeSource) ETag() string          { return "e" }
func (f *fakeSource) Reader() io.Reader     { return strings.NewReader("hello") }
func (f *fakeSource) Close() error          { f.closed.Add(1); return nil }
func (f *fakeSource) Finish(int64) (sandbox.ReadVerdict, error) {
	return f.verdict, f.finishErr
}

// fakeSink is a sink whose commit can be held.
type fakeSink struct {
	hold      chan struct{} // a commit waits for it, or for its context
	commitErr error
	better    error // what Abort says instead of the cause
	commits   atomic.Int32
	aborts    atomic.Int32
}

func (f *fakeSink) Writer() io.Writer { return io.Discard }

func (f *fakeSink) Commit(ctx context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	f.commits.Add(1)
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return sandbox.WriteInfo{}, sandbox.Cancelled(ctx, "write_file_stream", "")
		}
	}
	return sandbox.WriteInfo{Bytes: c.Bytes, ETag: "new"}, f.commitErr
}

func (f *fakeSink) Abort(cause error) error {
	f.aborts.Add(1)
	if f.better != nil {
		return f.better
	}
	return cause
}

func mintRead(t *testing.T, tb *transfer.Table, o transfer.Owner, src sandbox.Source) (*transfer.Transfer, string) {
	t.Helper()
	tr, token, err := tb.MintRead(t.Context(), o, func(context.Context) (sandbox.Source, error) { return src, nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(token) != transfer.TokenLength {
		t.Fatalf("token has %d characters", len(token))
	}
	return tr, token
}

func mintWrite(t *testing.T, tb *transfer.Table, o transfer.Owner, opts transfer.WriteOptions, sink sandbox.Sink) (*transfer.Transfer, string) {
	t.Helper()
	tr, token, err := tb.MintWrite(t.Context(), o, opts, func(context.Context) (sandbox.Sink, error) { return sink, nil })
	if err != nil {
		t.Fatal(err)
	}
	return tr, token
}

// streaming mints and claims a write and starts its pump.
func streaming(t *testing.T, tb *transfer.Table, o transfer.Owner, sink sandbox.Sink) *transfer.Transfer {
	t.Helper()
	tr, token := mintWrite(t, tb, o, transfer.WriteOptions{}, sink)
	if _, err := tb.Claim(token, nil); err != nil {
		t.Fatal(err)
	}
	if !tr.Start(func() {}) {
		t.Fatal("did not start")
	}
	return tr
}

func wantKind(t *testing.T, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Fatalf("kind = %q (%v), want %q", got, err, want)
	}
}

var acme = transfer.Owner{Tenant: "acme", Sandbox: "default"}

func TestReadEndsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		src := &fakeSource{verdict: sandbox.ReadVerdict{Changed: true}}
		tr, token := mintRead(t, tb, acme, src)
		if tr.State() != transfer.Minted {
			t.Fatalf("state %v", tr.State())
		}
		if _, err := tb.Claim(token, nil); err != nil || tr.State() != transfer.Claimed {
			t.Fatalf("claim: %v, state %v", err, tr.State())
		}
		tr.Start(func() {})
		if tr.State() != transfer.Streaming {
			t.Fatalf("state %v", tr.State())
		}
		tr.FinishRead(5, nil)
		out, err := tr.Wait(t.Context())
		if err != nil || out.Bytes != 5 || !out.Verdict.Changed || src.closed.Load() == 0 {
			t.Fatalf("outcome %+v %v, closed %d", out, err, src.closed.Load())
		}
		_, err = tr.Commit(t.Context(), sandbox.Commit{})
		wantKind(t, err, sandbox.KindInvalidParams)
		tb.Close(errors.New("end"))
	})
}

func TestReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		for name, tc := range map[string]struct {
			finish, cause error
			want          sandbox.Kind
		}{
			"source changed wins": {&sandbox.Error{Kind: sandbox.KindChanged}, &sandbox.Error{Kind: sandbox.KindAborted}, sandbox.KindChanged},
			"peer gone":           {nil, &sandbox.Error{Kind: sandbox.KindAborted}, sandbox.KindAborted},
		} {
			tr, token := mintRead(t, tb, acme, &fakeSource{finishErr: tc.finish})
			tb.Claim(token, nil)
			tr.Start(func() {})
			tr.FinishRead(3, tc.cause)
			_, err := tr.Wait(t.Context())
			wantKind(t, err, tc.want)
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Bytes != sandbox.Some(int64(3)) {
				t.Errorf("%s: bytes %+v", name, e.Bytes)
			}
		}
	})
}

func TestTokenIsSingleUse(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	defer tb.Close(errors.New("end"))
	for round := range 50 {
		tr, token := mintRead(t, tb, acme, &fakeSource{})
		var won atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 200 {
			wg.Go(func() {
				<-start
				if _, err := tb.Claim(token, nil); err == nil {
					won.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d claims won", round, won.Load())
		}
		tr.Fail(errors.New("x"))
		_, err := tb.Claim(token, nil)
		wantKind(t, err, sandbox.KindTokenInvalid)
	}
}

func TestTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{TokenTTL: 30 * time.Second})
		defer tb.Close(errors.New("end"))
		sink := &fakeSink{}
		tr, token := mintWrite(t, tb, acme, transfer.WriteOptions{}, sink)
		time.Sleep(30*time.Second - time.Nanosecond)
		synctest.Wait()
		if tr.State() != transfer.Minted {
			t.Fatalf("expired early: %v", tr.State())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if tr.State() != transfer.Expired || sink.aborts.Load() != 1 {
			t.Fatalf("state %v, aborts %d", tr.State(), sink.aborts.Load())
		}
		_, err := tb.Claim(token, nil)
		wantKind(t, err, sandbox.KindTokenInvalid)
		_, err = tr.Commit(t.Context(), sandbox.Commit{Bytes: 1})
		wantKind(t, err, sandbox.KindTokenInvalid)
		_, err = tr.Wait(t.Context())
		wantKind(t, err, sandbox.KindTokenInvalid)
	})
}

func TestClaimStopsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		tr := streaming(t, tb, acme, &fakeSink{})
		time.Sleep(time.Hour)
		synctest.Wait()
		if tr.State() != transfer.Streaming {
			t.Fatalf("state %v", tr.State())
		}
	})
}

func TestTokenOfASessionIsValidThereAlone(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	defer tb.Close(errors.New("end"))
	a, b := new(int), new(int)
	owner := acme
	owner.Group = transfer.NewGroup(a)
	_, token := mintRead(t, tb, owner, &fakeSource{})
	for _, session := range []any{nil, b} {
		_, err := tb.Claim(token, session)
		wantKind(t, err, sandbox.KindTokenInvalid)
		_, err = tb.Look(token, session, nil)
		wantKind(t, err, sandbox.KindTokenInvalid)
	}
	for range 2 { // a look takes nothing
		if _, err := tb.Look(token, a, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tb.Claim(token, a); err != nil {
		t.Fatal(err)
	}
	_, err := tb.Look(token, a, nil)
	wantKind(t, err, sandbox.KindTokenInvalid)
}

func TestCommitBeforeClaimAndData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		tr, token := mintWrite(t, tb, acme, transfer.WriteOptions{}, &fakeSink{})
		got := make(chan error, 1)
		go func() {
			out, err := tr.Commit(t.Context(), sandbox.Commit{Bytes: 7})
			if err == nil && (out.Bytes != 7 || out.ETag != "new") {
				err = fmt.Errorf("outcome %+v", out)
			}
			got <- err
		}()
		synctest.Wait()
		tb.Claim(token, nil)
		tr.Start(func() {})
		if want, over := tr.Wanted(); over || want != sandbox.Some(int64(7)) {
			t.Fatalf("wanted %+v %v", want, over)
		}
		tr.FinishWrite()
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if tr.State() != transfer.Done {
			t.Fatalf("state %v", tr.State())
		}
		if _, err := tr.Commit(t.Context(), sandbox.Commit{Bytes: 7}); err != nil {
			t.Fatalf("repeated: %v", err)
		}
		_, err := tr.Commit(t.Context(), sandbox.Commit{Bytes: 8})
		wantKind(t, err, sandbox.KindInvalidParams)
		wantKind(t, tr.Abort(t.Context()), sandbox.KindConflict)
	})
}

func TestCommitInterruptsThePump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		tr, token := mintWrite(t, tb, acme, transfer.WriteOptions{}, &fakeSink{})
		tb.Claim(token, nil)
		interrupted := make(chan struct{}, 8)
		tr.Start(func() { interrupted <- struct{}{} })
		go tr.Commit(t.Context(), sandbox.Commit{Bytes: 1})
		<-interrupted
		tr.Fail(errors.New("x"))
	})
}

func TestCommitRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		tr, _ := mintWrite(t, tb, acme, transfer.WriteOptions{Size: sandbox.Some(int64(10))}, &fakeSink{})
		_, err := tr.Commit(t.Context(), sandbox.Commit{Bytes: 4, SHA256: "aa"})
		wantKind(t, err, sandbox.KindInvalidParams)
		_, err = tr.Commit(t.Context(), sandbox.Commit{Bytes: 4})
		wantKind(t, err, sandbox.KindTruncated)
		_, err = tr.Commit(t.Context(), sandbox.Commit{Bytes: 4})
		wantKind(t, err, sandbox.KindTruncated)
		_, err = tr.Commit(t.Context(), sandbox.Commit{Bytes: 10})
		wantKind(t, err, sandbox.KindInvalidParams)
	})
}

func TestCancelledCommitAborts(t *testing.T) {
	for _, begun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tb := transfer.NewTable(transfer.Config{})
			defer tb.Close(errors.New("end"))
			sink := &fakeSink{hold: make(chan struct{})}
			tr := streaming(t, tb, acme, sink)
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan error, 1)
			go func() {
				_, err := tr.Commit(ctx, sandbox.Commit{Bytes: 0})
				got <- err
			}()
			synctest.Wait()
			if begun {
				go tr.FinishWrite()
				synctest.Wait()
				if tr.State() != transfer.Committing {
					t.Fatalf("state %v", tr.State())
				}
			}
			cancel()
			wantKind(t, <-got, sandbox.KindCancelled)
			if tr.State() != transfer.Aborted || sink.aborts.Load() == 0 {
				t.Fatalf("state %v, aborts %d", tr.State(), sink.aborts.Load())
			}
			_, err := tr.Wait(t.Context())
			wantKind(t, err, sandbox.KindAborted)
		})
	}
}

func TestCancelAfterTheRenameGivesTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		sink := &lateSink{begun: make(chan struct{}), hold: make(chan struct{})}
		tr := streaming(t, tb, acme, sink)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := tr.Commit(ctx, sandbox.Commit{Bytes: 0})
			got <- err
		}()
		synctest.Wait()
		go tr.FinishWrite()
		<-sink.begun
		cancel()
		synctest.Wait()
		close(sink.hold)
		if err := <-got; err != nil || tr.State() != transfer.Done {
			t.Fatalf("%v, state %v", err, tr.State())
		}
	})
}

// lateSink is past its rename: it no longer looks at its context.
type lateSink struct {
	fakeSink
	begun, hold chan struct{}
}

func (l *lateSink) Commit(ctx context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	close(l.begun)
	<-l.hold
	return sandbox.WriteInfo{Bytes: c.Bytes}, nil
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		sink := &fakeSink{}
		tr, token := mintWrite(t, tb, acme, transfer.WriteOptions{}, sink)
		if err := tr.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := tr.Abort(t.Context()); err != nil {
			t.Fatalf("again: %v", err)
		}
		if tr.State() != transfer.Aborted || sink.aborts.Load() != 1 {
			t.Fatalf("state %v, aborts %d", tr.State(), sink.aborts.Load())
		}
		_, err := tb.Claim(token, nil)
		wantKind(t, err, sandbox.KindTokenInvalid)
		if tr.Start(func() {}) {
			t.Fatal("started after the end")
		}
	})
}

func TestAbortDuringCommitWaitsForTheVerdict(t *testing.T) {
	for name, commitErr := range map[string]error{"done": nil, "failed": &sandbox.Error{Kind: sandbox.KindNoSpace}} {
		synctest.Test(t, func(t *testing.T) {
			tb := transfer.NewTable(transfer.Config{})
			defer tb.Close(errors.New("end"))
			sink := &fakeSink{hold: make(chan struct{}), commitErr: commitErr}
			tr := streaming(t, tb, acme, sink)
			go tr.Commit(t.Context(), sandbox.Commit{})
			synctest.Wait()
			go tr.FinishWrite()
			synctest.Wait()
			got := make(chan error, 1)
			go func() { got <- tr.Abort(t.Context()) }()
			synctest.Wait()
			if len(got) != 0 {
				t.Fatal("did not wait")
			}
			close(sink.hold)
			err := <-got
			if name == "done" {
				wantKind(t, err, sandbox.KindConflict)
			} else if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestClosedGroupAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		owner := acme
		owner.Group = transfer.NewGroup(nil)
		waiting, _ := mintWrite(t, tb, owner, transfer.WriteOptions{}, &fakeSink{})
		running := streaming(t, tb, owner, &fakeSink{})
		owner.Group.Close()
		for _, tr := range []*transfer.Transfer{waiting, running} {
			_, err := tr.Wait(t.Context())
			wantKind(t, err, sandbox.KindAborted)
		}
		_, _, err := tb.MintRead(t.Context(), owner, func(context.Context) (sandbox.Source, error) { return &fakeSource{}, nil })
		if err == nil {
			t.Fatal("minted for a connection that is gone")
		}
		if tb.Live() != 0 {
			t.Fatalf("%d live", tb.Live())
		}
	})
}

func TestAbortReportsTheBetterError(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	defer tb.Close(errors.New("end"))
	tr := streaming(t, tb, acme, &fakeSink{better: &sandbox.Error{Kind: sandbox.KindNoSpace}})
	tr.Fail(&sandbox.Error{Kind: sandbox.KindAborted})
	_, err := tr.Wait(t.Context())
	wantKind(t, err, sandbox.KindNoSpace)
}

func TestFindKeepsToTenantAndSandbox(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	defer tb.Close(errors.New("end"))
	tr, _ := mintRead(t, tb, acme, &fakeSource{})
	if got, err := tb.Find("acme", "default", tr.ID); err != nil || got != tr {
		t.Fatal(err)
	}
	for _, who := range [][3]string{{"other", "default", tr.ID}, {"acme", "other", tr.ID}, {"acme", "default", "x"}} {
		_, err := tb.Find(who[0], who[1], who[2])
		wantKind(t, err, sandbox.KindNotFound)
	}
}

func TestOutcomesAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{Kept: time.Minute, MaxKept: 2})
		defer tb.Close(errors.New("end"))
		var ids []string
		for range 3 {
			tr, _ := mintRead(t, tb, acme, &fakeSource{})
			tr.Abort(t.Context())
			ids = append(ids, tr.ID)
		}
		find := func(id string) error { _, err := tb.Find("acme", "default", id); return err }
		wantKind(t, find(ids[0]), sandbox.KindNotFound)
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		if find(ids[1]) != nil || find(ids[2]) != nil {
			t.Fatal("forgotten early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantKind(t, find(ids[1]), sandbox.KindNotFound)
		wantKind(t, find(ids[2]), sandbox.KindNotFound)
	})
}

func TestTenantLimit(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{MaxLive: 1})
	defer tb.Close(errors.New("end"))
	first, _ := mintRead(t, tb, acme, &fakeSource{})
	open := func(context.Context) (sandbox.Source, error) { return &fakeSource{}, nil }
	_, _, err := tb.MintRead(t.Context(), acme, open)
	wantKind(t, err, sandbox.KindResourceExhausted)
	var e *sandbox.Error
	if errors.As(err, &e); e.Limit != sandbox.Some(int64(1)) || e.RetryAfter <= 0 {
		t.Fatalf("%+v", e)
	}
	if _, _, err := tb.MintRead(t.Context(), transfer.Owner{Tenant: "other"}, open); err != nil {
		t.Fatal(err)
	}
	first.Abort(t.Context())
	if _, _, err := tb.MintRead(t.Context(), acme, open); err != nil {
		t.Fatal(err)
	}
}

// TestTokenLimit: what waits for its connection is bounded by itself; claimed,
// expired and aborted ones do not count.
func TestTokenLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{MaxTokens: 1, TokenTTL: time.Second})
		defer tb.Close(errors.New("end"))
		full := func() {
			t.Helper()
			_, _, err := tb.MintRead(t.Context(), acme, func(context.Context) (sandbox.Source, error) { return &fakeSource{}, nil })
			var e *sandbox.Error
			if wantKind(t, err, sandbox.KindResourceExhausted); !errors.As(err, &e) || e.Limit != sandbox.Some(int64(1)) || e.RetryAfter <= 0 {
				t.Fatalf("%+v", e)
			}
		}
		_, token := mintRead(t, tb, acme, &fakeSource{})
		full()
		if _, err := tb.Claim(token, nil); err != nil {
			t.Fatal(err)
		}
		mintRead(t, tb, acme, &fakeSource{})
		full()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		waiting, _ := mintRead(t, tb, acme, &fakeSource{})
		full()
		waiting.Abort(t.Context())
		_, _, err := tb.MintRead(t.Context(), acme, func(context.Context) (sandbox.Source, error) { return nil, errors.New("no") })
		if sandbox.KindOf(err) == sandbox.KindResourceExhausted {
			t.Fatal(err)
		}
		mintRead(t, tb, acme, &fakeSource{})
	})
}

func TestFailedOpenMintsNothing(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	_, _, err := tb.MintRead(t.Context(), acme, func(context.Context) (sandbox.Source, error) {
		return nil, &sandbox.Error{Kind: sandbox.KindNotFound}
	})
	wantKind(t, err, sandbox.KindNotFound)
	if tb.Live() != 0 {
		t.Fatalf("%d live", tb.Live())
	}
}

func TestMintOfACancelledCallClosesWhatItOpened(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	src := &fakeSource{}
	_, _, err := tb.MintRead(ctx, acme, func(context.Context) (sandbox.Source, error) { cancel(); return src, nil })
	wantKind(t, err, sandbox.KindCancelled)
	if src.closed.Load() != 1 || tb.Live() != 0 {
		t.Fatalf("closed %d, live %d", src.closed.Load(), tb.Live())
	}
}

func TestDrainWaitsForVerdictsToBeFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{FetchGrace: 5 * time.Second})
		defer tb.Close(errors.New("end"))
		start := time.Now()
		fetched, unfetched := streaming(t, tb, acme, &fakeSink{}), streaming(t, tb, acme, &fakeSink{})
		gone := acme
		gone.Group = transfer.NewGroup(nil)
		ownerless := streaming(t, tb, gone, &fakeSink{})
		done := make(chan time.Duration, 1)
		go func() {
			tb.Drain(t.Context())
			done <- time.Since(start)
		}()
		time.Sleep(time.Second)
		fetched.Fail(errors.New("x"))
		fetched.Wait(t.Context())
		ownerless.Fail(errors.New("x"))
		gone.Group.Close()
		unfetched.Fail(errors.New("x"))
		if d := <-done; d != 6*time.Second {
			t.Fatalf("drained after %v", d)
		}
	})
}

func TestDrainGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		tr := streaming(t, tb, acme, &fakeSink{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tb.Drain(ctx); err == nil {
			t.Fatal("drained a live transfer")
		}
		tb.Close(&sandbox.Error{Kind: sandbox.KindUnavailable, Reason: sandbox.ReasonDraining})
		_, err := tr.Wait(t.Context())
		wantKind(t, err, sandbox.KindUnavailable)
		_, _, err = tb.MintRead(t.Context(), acme, nil)
		wantKind(t, err, sandbox.KindUnavailable)
	})
}

func TestAwaitCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		defer tb.Close(errors.New("end"))
		tr := streaming(t, tb, acme, &fakeSink{})
		if tr.AwaitCommit(time.Minute) {
			t.Fatal("saw a commit that nobody made")
		}
		go tr.Commit(t.Context(), sandbox.Commit{Bytes: 3})
		if !tr.AwaitCommit(time.Minute) {
			t.Fatal("missed the commit")
		}
		tr.Fail(errors.New("x"))
		if !tr.AwaitCommit(time.Minute) {
			t.Fatal("missed the end")
		}
	})
}

// TestForgottenOutcomesAreLetGo: beyond the most that are kept nothing holds
// a transfer, not even its timer.
func TestForgottenOutcomesAreLetGo(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{Kept: time.Hour, MaxKept: 2})
	defer tb.Close(errors.New("end"))
	var gone atomic.Int32
	for range 50 {
		src := &fakeSource{}
		runtime.AddCleanup(src, func(*atomic.Int32) { gone.Add(1) }, nil)
		tr, _ := mintRead(t, tb, acme, src)
		tr.Abort(t.Context())
	}
	for deadline := time.Now().Add(30 * time.Second); gone.Load() < 40; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("only %d of 50 transfers were let go", gone.Load())
		}
	}
}

// TestCase_C42: a table knows tokens by their hash alone, so that the time of a
// look says nothing of a token that is nearly right, and what lies in memory is
// not worth stealing.
func TestCase_C42(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	defer tb.Close(errors.New("done"))
	tr, token := mintRead(t, tb, transfer.Owner{Tenant: "acme", Sandbox: "s"}, &fakeSource{})
	held := fmt.Sprintf("%#v %#v", tb, tr)
	if strings.Contains(held, token) {
		t.Error("the token is held")
	}
	_, hash, _ := strings.Cut(fmt.Sprintf("%#v", sha256.Sum256([]byte(token))), "{")
	if !strings.Contains(held, hash) {
		t.Error("the hash is not held: how is the token found?")
	}
}

// TestAfterEnd: told once, when the outcome stands; not behind that, and not
// when it was forgotten.
func TestAfterEnd(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	defer tb.Close(errors.New("end"))
	tr, _ := mintRead(t, tb, acme, &fakeSource{})
	told := map[string]int{}
	for _, who := range []string{"a", "b", "b", "c"} {
		if !tr.AfterEnd(who, func() {
			if !tr.State().Ended() {
				t.Error("told before the end")
			}
			told[who]++
		}) {
			t.Fatal("a transfer that lives says it has ended")
		}
	}
	tr.Forget("c")
	tr.Forget("nobody")
	tr.Abort(t.Context())
	if told["a"] != 1 || told["b"] != 1 || told["c"] != 0 {
		t.Errorf("told %v", told)
	}
	if tr.AfterEnd("d", func() { t.Error("told of an end that was before") }) {
		t.Error("a transfer that ended says it lives")
	}
}
