package transfer_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// TestRenewGivesAllTheTime: P14.5. A token that was renewed lives its whole time,
// the one before is dead, and the source is closed once.
func TestRenewGivesAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := transfer.NewTable(transfer.Config{})
		src := &fakeSource{}
		tr, token := mintRead(t, tb, transfer.Owner{Tenant: "a", Sandbox: "b", Keyed: true}, src)
		for range 3 {
			time.Sleep(29 * time.Second)
			next, err := tb.Renew(tr, transfer.NewGroup(nil))
			if err != nil {
				t.Fatal(err)
			}
			_, err = tb.Claim(token, nil)
			wantKind(t, err, sandbox.KindTokenInvalid)
			token = next
		}
		time.Sleep(30*time.Second + 1)
		synctest.Wait()
		if tr.State() != transfer.Expired || src.closed.Load() != 1 {
			t.Errorf("%v, closed %d times", tr.State(), src.closed.Load())
		}
		_, err := tb.Renew(tr, transfer.NewGroup(nil))
		wantKind(t, err, sandbox.KindConflict)
		tb.Close(nil)
	})
}

// TestRenewForOneThatIsGone leaves the transfer to whoever comes next.
func TestRenewForOneThatIsGone(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	defer tb.Close(nil)
	tr, _ := mintRead(t, tb, transfer.Owner{Tenant: "a", Sandbox: "b", Keyed: true}, &fakeSource{})
	gone := transfer.NewGroup(nil)
	gone.Close()
	_, err := tb.Renew(tr, gone)
	wantKind(t, err, sandbox.KindCancelled)
	token, err := tb.Renew(tr, transfer.NewGroup(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tb.Claim(token, nil); err != nil {
		t.Error(err)
	}
}

// TestRenewAndClaimAtOnce: either the claim has the transfer, or it is renewed.
func TestRenewAndClaimAtOnce(t *testing.T) {
	tb := transfer.NewTable(transfer.Config{})
	defer tb.Close(nil)
	for range 200 {
		g := transfer.NewGroup(nil)
		tr, token := mintRead(t, tb, transfer.Owner{Tenant: "a", Sandbox: "b", Group: g, Keyed: true}, &fakeSource{})
		var claimErr, renewErr error
		var both sync.WaitGroup
		both.Go(func() { _, claimErr = tb.Claim(token, nil) })
		both.Go(func() { _, renewErr = tb.Renew(tr, transfer.NewGroup(nil)) })
		both.Go(g.Close)
		both.Wait()
		if claimErr == nil && renewErr == nil {
			t.Fatal("claimed, and yet renewed")
		}
		tr.Abort(t.Context())
	}
}
