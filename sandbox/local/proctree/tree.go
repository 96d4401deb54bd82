//go:build linux

package proctree

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// chaseStep is how long one round of killing on takes.
const chaseStep = 50 * time.Millisecond

// graceStep is how often a grace looks for its early end.
const graceStep = 200 * time.Millisecond

// Tree is a started command and all that grew from it.
type Tree struct {
	forest *Forest
	first  first
	group  group
	once   sync.Once

	chase   sync.Once // starts chasing
	chasing sync.WaitGroup
	quit    chan struct{} // ends chasing
	ended   sync.Once     // closes quit

	exited chan struct{}
	status syscall.WaitStatus // once exited is closed
	err    error
}

// first is a tree's first process.
type first interface {
	number() int
	// wait waits for its end, once.
	wait() (syscall.WaitStatus, error)
	kill()
}

// child is a first process that this one has started itself.
type child struct{ *os.Process }

func (c child) number() int { return c.Pid }
func (c child) kill()       { c.Kill() }

func (c child) wait() (syscall.WaitStatus, error) {
	state, err := c.Wait()
	if err != nil {
		return 0, err
	}
	return state.Sys().(syscall.WaitStatus), nil
}

// wait collects the first process.
func (t *Tree) wait() {
	t.status, t.err = t.first.wait()
	t.group.exited()
	t.forest.reaper.poke()
	close(t.exited)
}

// Exited is closed when the first process has ended.
func (t *Tree) Exited() <-chan struct{} { return t.exited }

// State is how the first process ended, after Exited.
func (t *Tree) State() (syscall.WaitStatus, error) {
	return t.status, t.err
}

// Alive tells whether any process of the tree still lives.
func (t *Tree) Alive() bool {
	select {
	case <-t.exited:
		return t.group.alive()
	default:
		return true
	}
}

// OOMKills counts the tree's processes that died for want of memory, where
// that is known.
func (t *Tree) OOMKills() int { return t.group.oomKills() }

// End kills the tree: TERM to all, KILL to all that is left after grace. It
// returns as soon as the tree is empty, and false when it is not within
// patience after the grace. Then it goes on killing until Release or Close.
func (t *Tree) End(grace, patience time.Duration) bool {
	if grace > 0 {
		t.group.signal(syscall.SIGTERM)
		if t.await(grace) {
			return true
		}
	}
	t.kill()
	if t.waitEmpty(patience) {
		return true
	}
	t.chase.Do(func() { t.chasing.Go(t.pursue) })
	return false
}

// await waits for a tree that was told to end, no longer than the forest can
// wait.
func (t *Tree) await(grace time.Duration) bool {
	for end := time.Now().Add(grace); ; {
		left := time.Until(end)
		if t.waitEmpty(min(left, graceStep)) {
			return true
		}
		select {
		case <-t.forest.hurry:
			return false
		default:
		}
		if left <= graceStep {
			return false
		}
	}
}

// pursue kills on what would not die in time.
func (t *Tree) pursue() {
	for !t.waitEmpty(chaseStep) {
		select {
		case <-t.quit:
			return
		case <-time.After(chaseStep):
		}
		t.kill()
	}
}

// giveUp ends the pursuit; it takes two steps at most.
func (t *Tree) giveUp() {
	t.ended.Do(func() { close(t.quit) })
	t.chasing.Wait()
}

// kill kills the group, and the first process by itself: it may have left the
// group, and whose it is is beyond doubt.
func (t *Tree) kill() {
	t.group.kill()
	t.first.kill()
}

// waitEmpty waits until the group is empty and the first process has been
// waited for; false when it took longer.
func (t *Tree) waitEmpty(patience time.Duration) bool {
	deadline := time.Now().Add(patience)
	if !t.group.waitEmpty(patience) {
		return false
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-t.exited:
		return true
	case <-timer.C:
		return false
	}
}

// Release gives up a tree that is empty. It may be called twice.
func (t *Tree) Release() {
	t.once.Do(func() {
		t.giveUp()
		t.forest.mu.Lock()
		delete(t.forest.trees, t)
		t.forest.mu.Unlock()
		t.group.release()
	})
}
