//go:build linux

package proctree

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// walked is one tree.
type walked struct {
	all      *walks
	root     key
	mark     mark
	env      string // a string of the environment, where there are no marks
	quit     chan struct{}
	watching sync.WaitGroup

	// Guarded by all.mu.
	waited   bool
	ending   bool // was told to end
	killing  bool
	members  map[key]bool // true: not a zombie when last seen
	recorded map[key]bool // leaders of sessions
	sessions map[int]bool
}

// settle finds the tree's members again: what was known, what is in one of
// its sessions (nobody enters a session from outside), what grew from those.
func (t *walked) settle(v view) map[key]bool {
	old, sessions := t.members, t.sessions
	t.members, t.sessions = make(map[key]bool), make(map[int]bool)
	if p, ok := v.all[t.root.pid]; ok && p.key == t.root {
		t.adopt(v, p)
	}
	for k := range old {
		if p, ok := v.all[k.pid]; ok && p.key == k {
			t.adopt(v, p)
		}
	}
	for sid := range sessions {
		for _, p := range v.sessions[sid] {
			if p.start >= t.root.start {
				t.adopt(v, p)
			}
		}
	}
	if !t.waited {
		t.sessions[t.root.pid] = true
	}
	return t.members
}

// adopt adds a process and what grew from it.
func (t *walked) adopt(v view, first proc) {
	for todo := []proc{first}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, known := t.members[p.key]; known || p.pid == t.all.self || t.all.keeper.is(p.pid) {
			continue
		}
		t.members[p.key] = p.live()
		t.recordSession(p)
		// Before its setsid the first process is in this program's session.
		if !t.all.outside(p.sid) && !t.sessions[p.sid] {
			t.sessions[p.sid] = true
			todo = append(todo, v.sessions[p.sid]...)
		}
		todo = append(todo, v.children[p.pid]...)
	}
}

// recordSession writes down a member that leads a session of its own: when
// this process has died, nothing else tells whose it was.
func (t *walked) recordSession(p proc) {
	if t.all.record == nil || p.sid != p.pid || t.recorded[p.key] {
		return
	}
	t.recorded[p.key] = true
	t.all.record(Remains{PID: p.pid, Start: p.start, Env: t.env})
}

// living walks and returns the members that are no zombies.
func (t *walked) living() []key {
	t.all.update()
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	var keys []key
	for k, live := range t.members {
		if live {
			keys = append(keys, k)
		}
	}
	return keys
}

// watch notes descendants while the first process lives, so that one which
// leaves its session and its parent later is known already.
func (t *walked) watch() {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		select {
		case <-t.quit:
			return
		case <-time.After(pause):
		}
		for todo := []int{t.root.pid}; len(todo) > 0; {
			pids, ok := childrenOf(todo[0])
			if !ok {
				return
			}
			todo = append(todo[1:], pids...)
			t.note(pids)
		}
	}
}

func (t *walked) note(pids []int) {
	for _, pid := range pids {
		p, ok := readProc(pid)
		t.all.mu.Lock()
		if _, known := t.members[p.key]; ok && !known && p.start >= t.root.start {
			t.members[p.key] = p.live()
			t.recordSession(p)
			if !t.all.outside(p.sid) {
				t.sessions[p.sid] = true
			}
		}
		t.all.mu.Unlock()
	}
}

// exited implements group.
func (t *walked) exited() {
	close(t.quit)
	t.watching.Wait()
	t.all.mu.Lock()
	t.waited = true
	t.all.mu.Unlock()
}

// alive implements group. Once the first process is gone every branch of the
// tree hangs on this process or its keeper: without an unknown child there is
// none, and the process table need not be read.
func (t *walked) alive() bool {
	if pids, ok := orphansOf(t.all.keeper.homes()); ok && t.gone() {
		roots, unsure := t.all.roots(), false
		for _, pid := range pids {
			if roots[pid] {
				continue
			}
			mine, known := t.claims(pid)
			if mine {
				return true
			}
			unsure = unsure || !known
		}
		if !unsure {
			return false
		}
	}
	return len(t.living()) > 0 || !newHunt(t.mark, false).empty(time.Now().Add(aliveLooks))
}

// claims tells whether a child is a living one of the tree, and whether more
// need not be asked: what is gone or dead may have passed something on.
func (t *walked) claims(pid int) (mine, known bool) {
	marked := t.mark.on(pid)
	p, there := readProc(pid) // last: what has gone by now was not asked
	switch {
	case !there:
		return false, false
	case t.all.outside(p.sid):
		return false, true
	case t.mark.marks == nil:
		return false, !p.live()
	case !marked:
		return false, true
	}
	return p.live(), p.live()
}

// aliveLooks bounds how long alive looks while much is going on.
const aliveLooks = 50 * time.Millisecond

func (t *walked) gone() bool {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	return t.waited
}

// signal implements group. Parents come first: a shell that sees its child
// end before the signal has reached it would go on to its next command.
func (t *walked) signal(sig syscall.Signal) {
	t.all.mu.Lock()
	t.ending = true
	t.all.mu.Unlock()
	for _, k := range parentsFirst(t.living(), parentOf) {
		k.send(sig)
	}
}

// stopRounds bounds the chase after a tree that forks faster than it can be
// stopped; what is left after it is chased by waitEmpty.
const stopRounds = 64

// kill implements group. Without marks everything is stopped first, until
// nothing new is found, so that nothing forks away between the look and the
// kill.
func (t *walked) kill() {
	t.all.mu.Lock()
	t.killing = true
	t.all.mu.Unlock()
	if t.mark.marks == nil {
		t.stop()
	}
	newHunt(t.mark, true).look()
	t.signal(syscall.SIGKILL)
}

func (t *walked) stop() {
	stopped := make(map[key]bool)
	for range stopRounds {
		fresh := 0
		for _, k := range t.living() {
			if !stopped[k] {
				stopped[k] = true
				k.send(syscall.SIGSTOP)
				fresh++
			}
		}
		if fresh == 0 {
			break
		}
	}
}

// waitEmpty implements group. It wakes when a member ends. That nothing lives
// is only said after looks that cannot have missed anything.
func (t *walked) waitEmpty(patience time.Duration) bool {
	deadline := time.Now().Add(patience)
	for {
		quiet := newHunt(t.mark, t.isKilling()).empty(deadline)
		left := t.living()
		if quiet && len(left) == 0 {
			return true
		}
		rest := time.Until(deadline)
		if rest <= 0 {
			return false
		}
		if t.isKilling() {
			for _, k := range left {
				k.send(syscall.SIGKILL)
			}
		}
		pollEnd(left, min(rest, 50*time.Millisecond))
	}
}

// pollEnd waits until one of the processes has ended.
func pollEnd(keys []key, patience time.Duration) {
	var fds []unix.PollFd
	for _, k := range keys[:min(len(keys), 64)] {
		if fd, err := k.open(); err == nil {
			defer unix.Close(fd)
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	if len(fds) > 0 {
		unix.Poll(fds, int(patience/time.Millisecond)+1)
	}
}

func (t *walked) isKilling() bool {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	return t.killing
}

func (t *walked) oomKills() int { return 0 }

// release implements group.
func (t *walked) release() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	delete(t.all.trees, t)
}
