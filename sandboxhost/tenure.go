package sandboxhost

import (
	"errors"
	"sync"
	"time"
)

// tenure decides how long a life lasts: while it is used, and some time beyond,
// but no longer than its bound. Once it ends nobody gets in any more.
type tenure struct {
	// idleStop is how long the life goes on unused; 0 is for ever.
	idleStop time.Duration
	// retire ends the life when its time is up. It runs on a goroutine of its
	// own, once.
	retire func()

	mu     sync.Mutex
	runs   bool // time counts
	ending bool
	users  int
	quiet  time.Time   // since when there are none
	ends   time.Time   // zero where nothing bounds it
	idle   *time.Timer // fires when it was quiet for long enough
	bound  *time.Timer // fires at ends
}

// errEnding is that of a life which nobody gets into any more.
var errEnding = errors.New("the sandbox is being stopped")

// enter counts a user, who leaves it. It is false where the life ends: the next
// one is for this user.
func (u *tenure) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ending {
		return false
	}
	u.users++
	if u.idle != nil {
		u.idle.Stop()
	}
	return true
}

func (u *tenure) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.users--
	u.rest()
}

// rest has a life that nobody uses wait for its next user.
func (u *tenure) rest() {
	if !u.runs || u.ending || u.users > 0 || u.idleStop <= 0 {
		return
	}
	u.quiet = time.Now()
	if u.idle == nil {
		u.idle = time.AfterFunc(u.idleStop, u.rested)
	} else {
		u.idle.Reset(u.idleStop)
	}
}

// rested ends a life that has been quiet for long enough. Its timer may have
// fired just as somebody came, or came and went.
func (u *tenure) rested() {
	u.endIf(func() bool { return u.users == 0 && time.Since(u.quiet) >= u.idleStop })
}

// begin lets time count, from now to ends, where that is not zero.
func (u *tenure) begin(ends time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ending {
		return
	}
	u.runs, u.ends = true, ends
	if !ends.IsZero() {
		u.bound = time.AfterFunc(time.Until(ends), u.expired)
	}
	u.rest()
}

// expired ends a life whose bound has come, and was not moved meanwhile.
func (u *tenure) expired() { u.endIf(func() bool { return !time.Now().Before(u.ends) }) }

// extend moves the bound to until, unless it is later already, and has that
// recorded before. errEnding tells that the life ends.
func (u *tenure) extend(until time.Time, record func(time.Time) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ending {
		return errEnding
	}
	if u.ends.IsZero() || !until.After(u.ends) {
		return nil
	}
	if err := record(until); err != nil {
		return err
	}
	u.ends = until
	u.bound.Reset(time.Until(until))
	return nil
}

// end keeps everybody out from now on. It is false where that was so before.
func (u *tenure) end() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ending {
		return false
	}
	u.ending = true
	u.stopTimers()
	return true
}

func (u *tenure) endIf(due func() bool) {
	u.mu.Lock()
	if u.ending || !due() {
		u.mu.Unlock()
		return
	}
	u.ending = true
	u.stopTimers()
	u.mu.Unlock()
	u.retire()
}

// ended lets no time count any more: the life is over by itself.
func (u *tenure) ended() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs = false
	u.stopTimers()
}

func (u *tenure) stopTimers() {
	for _, t := range []*time.Timer{u.idle, u.bound} {
		if t != nil {
			t.Stop()
		}
	}
}

// isEnding tells whether nobody gets in any more.
func (u *tenure) isEnding() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ending
}

// boundAt returns when the life ends, zero where nothing bounds it.
func (u *tenure) boundAt() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ends
}

// within does something before the life can end; errEnding where it does.
func (u *tenure) within(do func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ending {
		return errEnding
	}
	return do()
}
