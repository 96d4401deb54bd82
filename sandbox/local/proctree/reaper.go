//go:build linux

package proctree

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// foreignGrace is how long a zombie that might be another part's child is
// left to that part.
const foreignGrace = 2 * time.Second

// reapDelay gathers the ends of many processes into one look, firstDelay in
// process 1, which is told of each; longestPause lies between two looks while
// trees live.
const (
	reapDelay    = 10 * time.Millisecond
	firstDelay   = time.Millisecond
	longestPause = foreignGrace / 4
)

// reaper calls tidy a while after each poke, and then, ever more seldom, for
// as long as tidy or busy say that more may come. It is not told of every
// child's end by a signal, which costs a command more than all the rest here:
// orphans come from trees, and those are known. Only process 1 is given
// others, too, and listens.
type reaper struct {
	tidy, busy func() bool
	pokes      chan struct{}
	armed      atomic.Bool // a look is due, or a poke is on its way
	signals    chan os.Signal
	delay      time.Duration
	quit       chan struct{}
	done       sync.WaitGroup
}

func startReaper(tidy, busy func() bool) *reaper {
	r := &reaper{tidy: tidy, busy: busy, pokes: make(chan struct{}, 1), signals: make(chan os.Signal, 1), delay: reapDelay, quit: make(chan struct{})}
	if os.Getpid() == 1 {
		signal.Notify(r.signals, syscall.SIGCHLD)
		r.delay = firstDelay
	}
	r.done.Go(r.run)
	return r
}

// poke says that a tree was started or that its first process has ended.
func (r *reaper) poke() {
	if r.armed.CompareAndSwap(false, true) {
		r.pokes <- struct{}{}
	}
}

func (r *reaper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := r.delay
	due := time.Now()
	// soon has the next look come in the delay, or when it comes anyway: a
	// stream of ends must not put it off.
	soon := func() {
		pause = r.delay
		if next := time.Now().Add(pause); due.IsZero() || next.Before(due) {
			due = next
			timer.Reset(pause)
		}
	}
	for {
		select {
		case <-r.quit:
			r.tidy()
			return
		case <-r.pokes:
			soon()
		case <-r.signals:
			soon()
		case <-timer.C:
			due = time.Time{}
			r.armed.Store(false) // what ends from here on pokes again
			if !r.tidy() && !r.busy() {
				pause = r.delay
				continue
			}
			if !r.armed.CompareAndSwap(false, true) {
				continue // the poke is read next
			}
			pause = min(2*pause, longestPause)
			due = time.Now().Add(pause)
			timer.Reset(pause)
		}
	}
}

func (r *reaper) stop() {
	signal.Stop(r.signals)
	close(r.quit)
	r.done.Wait()
}

// orphanage reaps zombies that this process adopted.
type orphanage struct {
	roots func() map[int]bool // children that have an owner
	mark  mark                // what all trees' processes bear
	self  int
	sid   int

	mu    sync.Mutex
	since map[key]time.Time // zombies that may be another part's
}

func newOrphanage(roots func() map[int]bool, m mark) *orphanage {
	sid, _ := unix.Getsid(0)
	return &orphanage{roots: roots, mark: m, self: os.Getpid(), sid: sid, since: make(map[key]time.Time)}
}

// tidy reaps what can be told to be an orphan and returns whether a zombie is
// left whose owner may still come.
func (o *orphanage) tidy() bool {
	if !adoptsOrphans() {
		return false
	}
	pids, ok := childrenOf(o.self)
	if !ok {
		for _, p := range table() {
			if p.ppid == o.self {
				pids = append(pids, p.pid)
			}
		}
	}
	roots := o.roots()
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := make(map[key]time.Time)
	for _, pid := range pids {
		p, ok := readProc(pid)
		if !ok || p.live() || p.ppid != o.self || roots[pid] || p.sid == o.sid {
			continue
		}
		if o.adopted(p) {
			reap(pid)
			continue
		}
		waiting[p.key] = time.Now()
		if first, seen := o.since[p.key]; seen {
			waiting[p.key] = first
		}
	}
	o.since = waiting
	return len(waiting) > 0
}

// adopted tells whether a zombie cannot be another part's child. A child that
// this program started is in its session or leads one of its own; what
// neither holds for came here as an orphan.
func (o *orphanage) adopted(p proc) bool {
	if p.sid != p.pid || o.mark.proves(p.pid) {
		return true
	}
	first, seen := o.since[p.key]
	return seen && time.Since(first) >= foreignGrace
}
