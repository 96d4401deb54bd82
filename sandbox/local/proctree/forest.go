//go:build linux

package proctree

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// The kinds of forests.
const (
	KindCgroup    = "cgroup"
	KindSubreaper = "subreaper"
)

// ErrClosed is returned by Start on a closed forest.
var ErrClosed = errors.New("proctree: closed")

// Options say how a forest holds its trees.
type Options struct {
	// Walk forbids cgroups.
	Walk bool
	// Name is the name of the forest's own cgroup.
	Name string
	// Env is a string of the environment that all commands get. It helps to
	// tell them from other children of this process.
	Env string
	// Limits bound each tree. What has bounds needs cgroups: without them, or
	// without the controllers, Open fails with [ErrNoLimits].
	Limits Limits
	// Record is told what has to go if this process dies, before (a cgroup)
	// or as soon as (a process) it exists. See Sweep.
	Record func(Remains) error
	// Keeper, where not nil, ends the trees if this process dies.
	Keeper *Keeper
	// User, where not nil, is who commands run as. To change to it this process
	// needs CAP_SETUID and CAP_SETGID, to end them CAP_KILL. A keeper has none
	// of these, so there is none then.
	User *syscall.Credential
}

// Limits bound one tree of processes. Zero means no bound.
type Limits struct {
	// Memory in bytes, swap included: a tree that needs more is killed whole.
	Memory int64
	// Processes and threads at once: a fork beyond fails with EAGAIN.
	Processes int64
}

// ErrNoLimits is returned by Open where limits are asked for and cannot be
// held.
var ErrNoLimits = errors.New("proctree: limits need the memory and pids controllers of cgroup v2")

// Forest is a set of process trees.
type Forest struct {
	kind   holder
	marks  *marks // nil where there are none
	reaper *reaper
	stop   func() // undoes the signal set-up

	keeper *Keeper   // nil: none
	left   []Remains // what it is told

	hurry chan struct{} // closed: no grace any more
	urged sync.Once

	// starting keeps the reaper out between a start and its entry in trees.
	starting sync.RWMutex

	mu     sync.Mutex
	trees  map[*Tree]struct{}
	closed bool
}

// holder is one of the two ways to hold trees.
type holder interface {
	name() string
	// start starts the process inside a new group.
	start(c Command) (first, group, error)
	close()
}

// group is the set of one tree's processes.
type group interface {
	// alive tells whether a process of the tree is left, zombies apart.
	alive() bool
	// signal sends a signal to every process.
	signal(sig syscall.Signal)
	// kill kills every process; some may still be going when it returns.
	kill()
	// waitEmpty waits until no process is left; false when it took longer.
	waitEmpty(patience time.Duration) bool
	// oomKills counts members that the kernel killed for want of memory.
	oomKills() int
	// exited is told that the first process has been waited for.
	exited()
	// release is called once, when the tree is empty.
	release()
}

// Command is what Start starts.
type Command struct {
	Path string
	Args []string
	// Env is the whole environment, not nil.
	Env []string
	// Dir is the directory to start in.
	Dir string
	// Files are the descriptors 0, 1, 2.
	Files []*os.File
}

// Open makes a forest. Where cgroups are wanted but do not work it falls back
// to walking.
func Open(o Options) (*Forest, error) {
	f := &Forest{trees: make(map[*Tree]struct{}), hurry: make(chan struct{}), marks: openMarks(o.Env), keeper: o.Keeper}
	o.Record = f.noting(o.Record)
	if f.marks != nil {
		f.marks.user = o.User
	}
	if err := f.open(o); err != nil {
		return nil, err
	}
	// Not before: a keeper would stand in the way of handing controllers down.
	for _, r := range f.left {
		f.keeper.keep(r)
	}
	f.reaper = startReaper(newOrphanage(f.roots, f.marks.all()).tidy, f.busy)
	f.stop = unignore()
	return f, nil
}

// open finds out how trees can be held.
func (f *Forest) open(o Options) error {
	if f.marks != nil {
		if err := o.Record(Remains{Mark: f.marks.base, Env: o.Env}); err != nil {
			return err
		}
	}
	if !o.Walk {
		c, err := openCgroups(o, f.marks)
		if err != nil {
			return err
		}
		if c != nil {
			f.kind = c
			return nil
		}
	}
	if o.Limits != (Limits{}) {
		return ErrNoLimits
	}
	w, err := openWalk(o, f.marks)
	if err != nil {
		return err
	}
	f.kind = w
	return nil
}

// noting returns a Record that remembers what the keeper has to be told. What
// grew from single processes it need not be.
func (f *Forest) noting(record func(Remains) error) func(Remains) error {
	return func(r Remains) error {
		if r.PID == 0 {
			f.left = append(f.left, r)
		}
		if record == nil {
			return nil
		}
		return record(r)
	}
}

// forget takes back what the keeper was told.
func (f *Forest) forget() {
	for _, r := range f.left {
		f.keeper.drop(r)
	}
	f.left = nil
}

// Kind tells how trees are held: KindCgroup or KindSubreaper.
func (f *Forest) Kind() string { return f.kind.name() }

// unignore makes signals that this process inherited as ignored reach its
// children with their default meaning: a handled signal is reset by an exec,
// an ignored one is not. Here they still do nothing.
func unignore() func() {
	drop := make(chan os.Signal, 1)
	var sigs []os.Signal
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE} {
		if signal.Ignored(sig) {
			sigs = append(sigs, sig)
		}
	}
	if len(sigs) == 0 {
		return func() {}
	}
	signal.Notify(drop, sigs...)
	return func() {
		signal.Stop(drop)
		signal.Ignore(sigs...)
	}
}

// roots returns the first processes of all trees that were not waited for.
func (f *Forest) roots() map[int]bool {
	f.starting.Lock()
	defer f.starting.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	pids := make(map[int]bool, len(f.trees))
	for t := range f.trees {
		select {
		case <-t.exited:
		default:
			pids[t.first.number()] = true
		}
	}
	return pids
}

// Start starts a command as the first process of a new tree. The caller ends
// it with Release.
func (f *Forest) Start(c Command) (*Tree, error) {
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	f.starting.RLock()
	defer f.starting.RUnlock()
	p, g, err := f.kind.start(c)
	if err != nil {
		return nil, err
	}
	t := &Tree{forest: f, first: p, group: g, exited: make(chan struct{}), quit: make(chan struct{})}
	f.mu.Lock()
	f.trees[t] = struct{}{}
	f.mu.Unlock()
	f.reaper.poke()
	go t.wait()
	return t, nil
}

// busy tells whether there is a tree.
func (f *Forest) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.trees) > 0
}

// Hurry ends the grace of all trees that were told to end.
func (f *Forest) Hurry() { f.urged.Do(func() { close(f.hurry) }) }

// Close kills what is left of all trees, waits for it and releases the
// forest. It gives up on what cannot be killed after the given time, and
// returns whether nothing was left.
func (f *Forest) Close(patience time.Duration) bool {
	f.mu.Lock()
	f.closed = true
	var left []*Tree
	for t := range f.trees {
		left = append(left, t)
	}
	f.mu.Unlock()
	for _, t := range left {
		t.kill()
	}
	deadline := time.Now().Add(patience)
	empty := true
	for _, t := range left {
		if !t.waitEmpty(time.Until(deadline)) {
			empty = false
			t.giveUp()
			continue
		}
		t.Release()
	}
	// What left its tree for good is found by the mark that all trees share.
	if !newHunt(f.marks.all(), true).empty(deadline) {
		empty = false
	}
	if empty {
		f.forget()
	}
	f.reaper.stop()
	f.kind.close()
	f.stop()
	return empty
}
