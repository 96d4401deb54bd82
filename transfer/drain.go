package transfer

import (
	"context"
	"time"
)

// Live returns how many transfers have not ended.
func (tb *Table) Live() int {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	n := 0
	for _, tn := range tb.tenants {
		n += tn.live
	}
	return n
}

// Drain waits until no transfer lives and each verdict was fetched, its owner
// is gone or [Config.FetchGrace] has passed; when ctx ends first it returns
// ctx's error.
func (tb *Table) Drain(ctx context.Context) error {
	for {
		tb.mu.Lock()
		wait, idle := tb.unfetched()
		changed := tb.changed
		tb.mu.Unlock()
		if idle {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// unfetched tells how long the youngest unfetched verdict will be waited for
// and whether there is nothing left to wait for. The caller holds the lock.
func (tb *Table) unfetched() (wait time.Duration, idle bool) {
	idle = true
	for _, tn := range tb.tenants {
		if tn.live > 0 {
			return time.Hour, false
		}
		for _, t := range tn.kept {
			t.mu.Lock()
			left := tb.cfg.FetchGrace - time.Since(t.endedAt)
			if !t.fetched && left > 0 && (t.owner.Group == nil || !t.owner.Group.gone()) {
				wait, idle = max(wait, left), false
			}
			t.mu.Unlock()
		}
	}
	return wait, idle
}

// Close ends every live transfer with err, waits for commits that are past
// their rename, and stops all timers. Later mints are refused.
func (tb *Table) Close(err error) {
	tb.mu.Lock()
	tb.closed = true
	all := make([]*Transfer, 0, len(tb.ids))
	for _, t := range tb.ids {
		all = append(all, t)
	}
	clear(tb.tokens)
	tb.mu.Unlock()
	for _, t := range all {
		t.stop(err)
		<-t.done
		tb.mu.Lock()
		if t.retain != nil {
			t.retain.Stop()
		}
		tb.mu.Unlock()
	}
}
