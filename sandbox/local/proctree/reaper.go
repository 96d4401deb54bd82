//go:build linux

package proctree

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// foreignGrace is how long a zombie that might be another part's child is
// left to that part.
const foreignGrace = 2 * time.Second

// reapDelay gathers the ends of many processes into one look.
const reapDelay = 10 * time.Millisecond

// reaper calls tidy some time after children ended. tidy returns whether it
// wants to be called again later.
type reaper struct {
	signals chan os.Signal
	quit    chan struct{}
	done    sync.WaitGroup
}

func startReaper(tidy func() bool) *reaper {
	r := &reaper{signals: make(chan os.Signal, 1), quit: make(chan struct{})}
	signal.Notify(r.signals, syscall.SIGCHLD)
	r.done.Go(func() { r.run(tidy) })
	return r
}

func (r *reaper) run(tidy func() bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.quit:
			tidy()
			return
		case <-r.signals:
			timer.Reset(reapDelay)
		case <-timer.C:
			if tidy() {
				timer.Reset(foreignGrace / 4)
			}
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
