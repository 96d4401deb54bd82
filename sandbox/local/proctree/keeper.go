//go:build linux

package proctree

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ErrLost is returned by Start when the keeper died over it and the process is
// not to be found: whether it began is not known; nothing of it lives on. A
// tree's state is ErrLost when the keeper took the status with it.
var ErrLost = errors.New("proctree: the process that starts commands was killed")

// errNoKeeper says that there is no keeper to start anything.
var errNoKeeper = errors.New("proctree: no keeper")

// Keeper is a small process beside this one that outlives it for as long as it
// takes to kill what this one leaves when it dies without a word. Forests that
// walk have it start their trees: it is the subreaper of all that grows from
// them, so that nothing can leave it. Forests with cgroups tell it of those.
//
// The process is made when it is first needed, and again when one has been
// killed; its orphans have come to this process then, which holds them as it
// holds trees without a keeper. One serves any number of forests.
type Keeper struct {
	path string
	args []string
	pid  atomic.Int64 // of the process, 0 while there is none
	here atomic.Bool  // orphans may have come to this process, too

	mu      sync.Mutex
	link    *link // to the process; nil before the first
	useless bool  // the command line does not make one
	closed  bool
	remains map[Remains]int
}

// NewKeeper returns a keeper whose process runs a program that calls [Keep] at
// once when it has these arguments, its name among them. The caller closes it
// after the forests that use it.
func NewKeeper(path string, args ...string) *Keeper {
	return &Keeper{path: path, args: args, remains: make(map[Remains]int)}
}

// closePatience is how long Close waits for what the keeper still kills.
const closePatience = 5 * time.Second

// Close ends the process. What is left of trees is killed. What cannot be
// killed in time is left to the process, which goes on.
func (k *Keeper) Close() {
	k.mu.Lock()
	l := k.link
	k.closed = true
	k.mu.Unlock()
	if l == nil {
		return
	}
	l.conn.CloseWrite()
	select {
	case <-l.gone:
	case <-time.After(closePatience):
	}
}

// number is the process's, 0 while there is none.
func (k *Keeper) number() int {
	if k == nil {
		return 0
	}
	return int(k.pid.Load())
}

// is tells whether a number is the keeper's.
func (k *Keeper) is(pid int) bool { return pid != 0 && k.number() == pid }

// homes are the processes that orphans come to: the keeper, and this one once
// it has had to do without.
func (k *Keeper) homes() []int {
	switch pid := k.number(); {
	case pid == 0:
		return []int{os.Getpid()}
	case k.here.Load():
		return []int{os.Getpid(), pid}
	default:
		return []int{pid}
	}
}

// marked tells whether a limit of file locks is a mark of one of the forests.
func (k *Keeper) marked(limit uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for r := range k.remains {
		if r.Mark != 0 && limit&^numbers == r.Mark {
			return true
		}
	}
	return false
}

// keep has what this process would leave sweep when it dies.
func (k *Keeper) keep(r Remains) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known := k.link != nil
	k.remains[r]++
	if l, err := k.current(); err == nil && known {
		l.sendRemains("keep", r)
	}
}

// drop forgets it again.
func (k *Keeper) drop(r Remains) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.remains[r]--; k.remains[r] > 0 {
		return
	}
	delete(k.remains, r)
	if k.link != nil {
		k.link.sendRemains("drop", r)
	}
}

// current returns the link to the process, which it makes where there is none.
// The caller holds the lock.
func (k *Keeper) current() (*link, error) {
	if k.link != nil && k.link.lost() {
		k.useless = !k.link.wasReady()
		k.link = nil
	}
	if k.closed || k.useless {
		return nil, errNoKeeper
	}
	if k.link != nil {
		return k.link, nil
	}
	l, err := dialKeeper(k)
	if err != nil {
		return nil, errNoKeeper
	}
	k.link = l
	for r := range k.remains {
		l.sendRemains("keep", r)
	}
	return l, nil
}

func (l *link) sendRemains(word string, r Remains) {
	text, err := json.Marshal(r)
	if err == nil {
		l.send(nil, word, string(text))
	}
}

// start has a first process started. errNoKeeper: somebody else has to.
func (k *Keeper) start(c Command, m mark) (*kept, error) {
	if k == nil {
		return nil, errNoKeeper
	}
	k.mu.Lock()
	l, err := k.current()
	k.mu.Unlock()
	if err != nil {
		k.here.Store(true)
		return nil, err
	}
	return l.start(c, m)
}
