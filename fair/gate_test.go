package fair_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/fair"
)

// enter takes a turn on a goroutine of its own and says when it has it.
func enter(t *testing.T, g *fair.Gate, ctx context.Context, tenant string) (has chan func()) {
	t.Helper()
	has = make(chan func(), 1)
	go func() {
		if leave, err := g.Enter(ctx, tenant); err == nil {
			has <- leave
		} else {
			close(has)
		}
	}()
	synctest.Wait()
	return has
}

// turn returns how to end a turn that must be there.
func turn(t *testing.T, has chan func()) func() {
	t.Helper()
	synctest.Wait()
	select {
	case leave, ok := <-has:
		if !ok {
			t.Fatal("the wait for a turn ended")
		}
		return leave
	default:
		t.Fatal("there is no turn yet")
		return nil
	}
}

func none(t *testing.T, has chan func(), why string) {
	t.Helper()
	synctest.Wait()
	if len(has) > 0 {
		t.Fatal(why)
	}
}

func TestAloneIsBoundedByItsOwnNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.New(fair.Options{Alone: 2, Shared: 1, Linger: time.Second})
		a := turn(t, enter(t, g, t.Context(), "a"))
		turn(t, enter(t, g, t.Context(), "a"))
		third := enter(t, g, t.Context(), "a")
		none(t, third, "a tenant has more turns than it may")
		a()
		a() // does no harm
		turn(t, third)
		none(t, enter(t, g, t.Context(), "a"), "a turn that was ended twice counts twice")
	})
}

func TestAloneUnbounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.New(fair.Options{Shared: 1, Linger: time.Second})
		for range 100 {
			turn(t, enter(t, g, t.Context(), "a"))
		}
	})
}

// TestNobodyWaitsForWhatANeighbourTookAlone: a tenant that comes later has a
// turn at once, and the first gets no more until it is down to its share.
func TestNobodyWaitsForWhatANeighbourTookAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.New(fair.Options{Shared: 2, Linger: time.Second})
		var a []func()
		for range 8 {
			a = append(a, turn(t, enter(t, g, t.Context(), "a")))
		}
		b := turn(t, enter(t, g, t.Context(), "b"))
		more := enter(t, g, t.Context(), "a")
		for i, leave := range a {
			none(t, more, "a tenant that holds too much has more")
			if leave(); i == 6 {
				break // b's and one of a's are left
			}
		}
		none(t, more, "a tenant has more than its share")
		b()
		turn(t, more)
	})
}

// TestTurnsGoRound: whoever has had the last turn comes behind who has not,
// however many wait.
func TestTurnsGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.New(fair.Options{Alone: 1, Shared: 1, Linger: time.Second})
		first := turn(t, enter(t, g, t.Context(), "a"))
		var a []chan func()
		for range 64 {
			a = append(a, enter(t, g, t.Context(), "a"))
		}
		// Without a turn out b has one at once; it then asks for another.
		b := turn(t, enter(t, g, t.Context(), "b"))
		b2 := enter(t, g, t.Context(), "b")
		first()
		none(t, b2, "more turns are out than may be")
		b()
		// Both hold none; a's last turn is longer ago.
		a0 := turn(t, a[0])
		a0()
		turn(t, b2)()
		turn(t, a[1])
	})
}

func TestOrderWithinATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.New(fair.Options{Alone: 1, Shared: 1, Linger: time.Second})
		leave := turn(t, enter(t, g, t.Context(), "a"))
		var waiting []chan func()
		for range 5 {
			waiting = append(waiting, enter(t, g, t.Context(), "a"))
		}
		for i, has := range waiting {
			leave()
			leave = turn(t, has)
			if i+1 < len(waiting) {
				none(t, waiting[i+1], "a later one came first")
			}
		}
	})
}

func TestGivingUpLeavesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.New(fair.Options{Alone: 1, Shared: 1, Linger: time.Second})
		leave := turn(t, enter(t, g, t.Context(), "a"))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := g.Enter(ctx, "a")
			done <- err
		}()
		synctest.Wait()
		last := enter(t, g, t.Context(), "a")
		why := errors.New("enough")
		cancel(why)
		if err := <-done; err != why {
			t.Errorf("error %v, want the cause", err)
		}
		leave()
		turn(t, last)
	})
}

// TestLinger: one that asked a moment ago still has its share kept free.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.New(fair.Options{Alone: 4, Shared: 1, Linger: time.Second})
		turn(t, enter(t, g, t.Context(), "b"))()
		turn(t, enter(t, g, t.Context(), "a"))
		more := enter(t, g, t.Context(), "a")
		none(t, more, "a tenant is alone although another asked a moment ago")
		if !g.Contended("a") {
			t.Error("not contended a moment after another asked")
		}
		time.Sleep(2 * time.Second)
		if g.Contended("a") {
			t.Error("contended long after another asked")
		}
		turn(t, enter(t, g, t.Context(), "c"))()
		time.Sleep(2 * time.Second)
	})
}

func TestNilGate(t *testing.T) {
	var g *fair.Gate
	leave, err := g.Enter(t.Context(), "a")
	if err != nil || g.Contended("a") {
		t.Fatal("a gate that is not there holds somebody up")
	}
	leave()
}
