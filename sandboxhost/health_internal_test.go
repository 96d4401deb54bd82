package sandboxhost

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeAgent says what a test has it say.
type fakeAgent struct {
	began time.Time
	heard atomic.Int64

	paused atomic.Bool

	mu    sync.Mutex
	asked []time.Duration // since the beginning
	ping  func(ctx context.Context, n int) error
}

func (a *fakeAgent) Heard() time.Time { return time.Unix(0, a.heard.Load()) }

func (a *fakeAgent) Ping(ctx context.Context) error {
	a.mu.Lock()
	a.asked = append(a.asked, time.Since(a.began))
	n := len(a.asked)
	a.mu.Unlock()
	return a.ping(ctx, n)
}

func silent(ctx context.Context, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

// attend runs Health.attend for 95 s, in which the agent speaks where speaks
// says so of a second.
func attend(a *fakeAgent, speaks, rests func(second int) bool) (stuck bool, after time.Duration) {
	a.began = time.Now()
	a.heard.Store(a.began.UnixNano())
	over := make(chan struct{})
	result := make(chan bool)
	all := attended{agent: a, over: over, paused: a.paused.Load}
	defer all.open.Wait()
	go func() { result <- Health{Interval: 10 * time.Second, Misses: 3}.attend(&all) }()
	time.Sleep(time.Second / 2) // so that nothing else comes at these moments
	for second := range 95 {
		a.paused.Store(rests != nil && rests(second))
		if speaks(second) {
			a.heard.Store(time.Now().UnixNano())
		}
		select {
		case stuck = <-result:
			return stuck, time.Since(a.began)
		case <-time.After(time.Second):
		}
	}
	close(over)
	return <-result, 0
}

func never(int) bool { return false }

// TestAttend: P16.10. An agent is asked when it was silent, and given up when it
// gives no sign of life some times in a row.
func TestAttend(t *testing.T) {
	failed := errors.New("no")
	for name, c := range map[string]struct {
		ping   func(context.Context, int) error
		speaks func(second int) bool
		stuck  time.Duration // when; 0 is never
		asked  int
		rests  func(second int) bool
	}{
		"it answers":         {func(context.Context, int) error { return nil }, never, 0, 9, nil},
		"it speaks":          {silent, func(s int) bool { return s%5 == 0 }, 0, 0, nil},
		"it is silent":       {silent, never, 40 * time.Second, 3, nil},
		"it cannot be asked": {func(context.Context, int) error { return failed }, never, 30 * time.Second, 3, nil},
		"not in a row": {func(ctx context.Context, n int) error {
			if n%3 == 0 {
				return nil
			}
			return silent(ctx, n)
		}, never, 0, 9, nil},
		"it speaks late":         {silent, func(s int) bool { return s == 38 }, 80 * time.Second, 6, nil},
		"it speaks while asked":  {silent, func(s int) bool { return s%20 == 15 }, 0, 5, nil},
		"it speaks until then":   {silent, func(s int) bool { return s <= 50 }, 90500 * time.Millisecond, 3, nil},
		"over while it is asked": {silent, func(s int) bool { return s <= 80 }, 0, 1, nil},
		"it is paused":           {silent, never, 0, 2, func(s int) bool { return s > 3 && s < 28 || s > 45 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{ping: c.ping}
				stuck, after := attend(a, c.speaks, c.rests)
				if stuck != (c.stuck > 0) || after != c.stuck || len(a.asked) != c.asked {
					t.Errorf("stuck: %v, after %v, asked at %v", stuck, after, a.asked)
				}
			})
		})
	}
}
