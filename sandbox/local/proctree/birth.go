//go:build linux

package proctree

import (
	"sync"

	"golang.org/x/sys/unix"
)

// ownLimit is what this process's own limit is while children are born. The
// limit is the whole process's, so this is, too.
var ownLimit = newBearing()

// bearing has this process bear one value at a time, for as long as any birth
// needs it. Births that need the same go side by side.
type bearing struct {
	mu      sync.Mutex
	free    sync.Cond // nobody needs a value any more
	value   uint64
	births  int
	waiting int // for another value
	own     unix.Rlimit
	set     bool
}

func newBearing() *bearing {
	b := &bearing{}
	b.free.L = &b.mu
	return b
}

// bear returns when this process bears the value. Who comes while others wait
// waits behind them, so that none waits for ever.
func (b *bearing) bear(value uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.births > 0 && (b.value != value || b.waiting > 0) {
		b.waiting++
		for b.free.Wait(); b.births > 0 && b.value != value; {
			b.free.Wait()
		}
		b.waiting--
	}
	if b.births++; b.births > 1 {
		return
	}
	b.value = value
	b.set = unix.Prlimit(0, markLimit(), nil, &b.own) == nil &&
		unix.Prlimit(0, markLimit(), &unix.Rlimit{Cur: value, Max: b.own.Max}, nil) == nil
}

// drop ends what bear began.
func (b *bearing) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.births--; b.births > 0 {
		return
	}
	if b.set {
		unix.Prlimit(0, markLimit(), &b.own, nil)
	}
	b.free.Broadcast()
}

// slots are small numbers that tell trees apart which are born at the same
// time. What a tree's first process starts before it is marked itself keeps
// the slot for good, and may outlive the tree; so a slot is used again only
// after a look at who has it.
type slots struct {
	base uint64 // the mark of those that have nothing but a slot

	mu    sync.Mutex
	clean []int // nobody has them
	given []int // given back since the last look
}

func newSlots(base uint64) *slots {
	s := &slots{base: base}
	for n := maxSlot; n > 0; n-- {
		s.clean = append(s.clean, n)
	}
	return s
}

// take returns a slot that nobody has, 0 where there is none.
func (s *slots) take() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.clean) == 0 {
		s.clear()
	}
	if len(s.clean) == 0 {
		return 0
	}
	n := s.clean[len(s.clean)-1]
	s.clean = s.clean[:len(s.clean)-1]
	return n
}

// give takes a slot back.
func (s *slots) give(n int) {
	if s == nil || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = append(s.given, n)
}

// clear looks who still has one of the slots that were given back. The caller
// holds the lock.
func (s *slots) clear() {
	if len(s.given) == 0 {
		return
	}
	had := s.held()
	var kept []int
	for _, n := range s.given {
		if had[n] {
			kept = append(kept, n)
		} else {
			s.clean = append(s.clean, n)
		}
	}
	s.given = kept
}

// held returns the slots of all processes that bear the mark of all trees
// alone. One that forks away behind the look is met on its way or is of a tree
// that lives, whose slot is not asked for.
func (s *slots) held() map[int]bool {
	had := make(map[int]bool)
	for _, pid := range numbersOfAll() {
		if limit, err := limitOf(pid); err == nil && limit.Cur == s.base {
			if slot, readable := readTag(pid); readable && slot > 0 {
				had[slot] = true
			}
		}
	}
	return had
}
