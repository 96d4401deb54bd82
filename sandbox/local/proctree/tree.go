//go:build linux

package proctree

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// Tree is a started command and all that grew from it.
type Tree struct {
	forest *Forest
	proc   *os.Process
	group  group
	once   sync.Once

	exited chan struct{}
	state  *os.ProcessState // once exited is closed
	err    error
}

// wait collects the first process.
func (t *Tree) wait() {
	t.state, t.err = t.proc.Wait()
	t.group.exited()
	close(t.exited)
}

// Exited is closed when the first process has ended.
func (t *Tree) Exited() <-chan struct{} { return t.exited }

// State is how the first process ended, after Exited.
func (t *Tree) State() (syscall.WaitStatus, error) {
	if t.err != nil {
		return 0, t.err
	}
	return t.state.Sys().(syscall.WaitStatus), nil
}

// Alive tells whether any process of the tree still lives.
func (t *Tree) Alive() bool { return t.group.alive() }

// OOMKills counts the tree's processes that died for want of memory, where
// that is known.
func (t *Tree) OOMKills() int { return t.group.oomKills() }

// End kills the tree: TERM to all, KILL to all that is left after grace. It
// returns as soon as the tree is empty, and false when it is not within
// patience after the grace.
func (t *Tree) End(grace, patience time.Duration) bool {
	if grace > 0 {
		t.group.signal(syscall.SIGTERM)
		if t.group.waitEmpty(grace) {
			<-t.exited
			return true
		}
	}
	t.group.kill()
	if !t.group.waitEmpty(patience) {
		return false
	}
	<-t.exited
	return true
}

// Release gives up a tree that is empty. It may be called twice.
func (t *Tree) Release() {
	t.once.Do(func() {
		t.forest.mu.Lock()
		delete(t.forest.trees, t)
		t.forest.mu.Unlock()
		t.group.release()
	})
}
