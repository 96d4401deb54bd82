//go:build linux

package proctree

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// walks holds trees by walking /proc.
type walks struct {
	record func(Remains) error // nil where marks tell what is left
	marks  *marks
	keeper *Keeper // nil: none
	user   *syscall.Credential
	self   int
	sid    int

	// starting keeps walks out between a start and its entry in trees: a new
	// first process would look like an orphan.
	starting sync.RWMutex

	mu    sync.Mutex
	trees map[*walked]struct{}
}

// openWalk makes this process the subreaper of its descendants.
func openWalk(o Options, m *marks) (*walks, error) {
	if err := becomeSubreaper(); err != nil {
		return nil, err
	}
	w := &walks{marks: m, keeper: o.Keeper, user: o.User, self: os.Getpid(), trees: make(map[*walked]struct{})}
	w.sid, _ = unix.Getsid(0)
	if m == nil {
		w.record = o.Record
	} else {
		m.keeper = o.Keeper
	}
	return w, nil
}

func (w *walks) name() string { return KindSubreaper }
func (w *walks) close()       {}

// outside tells whether a session is none of a tree's: a first process is in
// it until it has one of its own.
func (w *walks) outside(sid int) bool { return sid == w.sid || w.keeper.is(sid) }

// roots returns the first processes that have not been waited for.
func (w *walks) roots() map[int]bool {
	w.starting.Lock()
	defer w.starting.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	pids := make(map[int]bool)
	for t := range w.trees {
		if !t.waited {
			pids[t.root.pid] = true
		}
	}
	return pids
}

// start implements holder.
func (w *walks) start(c Command) (first, group, error) {
	w.starting.RLock()
	defer w.starting.RUnlock()
	m := w.marks.next()
	p, root, err := w.birth(c, m)
	if err != nil {
		return nil, nil, err
	}
	t := &walked{all: w, mark: m, root: root, members: make(map[key]bool), recorded: make(map[key]bool), sessions: map[int]bool{root.pid: true}, quit: make(chan struct{})}
	for _, entry := range c.Env {
		if strings.HasPrefix(entry, "HOME=") {
			t.env = entry
		}
	}
	w.mu.Lock()
	t.recordSession(proc{key: t.root, sid: t.root.pid})
	w.trees[t] = struct{}{}
	w.mu.Unlock()
	t.watching.Go(t.watch)
	return p, t, nil
}

// birth starts a process, by the keeper where there is one.
func (w *walks) birth(c Command, m mark) (first, key, error) {
	k, err := w.keeper.start(c, m)
	if err == nil {
		return k, k.key, nil
	}
	if errors.Is(err, ErrLost) {
		if p, root, ok := w.foundling(m); ok {
			return p, root, nil
		}
		newHunt(m, true).empty(time.Now().Add(lostPatience))
	}
	if !errors.Is(err, errNoKeeper) {
		return nil, key{}, err
	}
	sys := &syscall.SysProcAttr{Setsid: true, Credential: w.user}
	p, err := m.birth(func() (*os.Process, error) {
		return os.StartProcess(c.Path, c.Args, &os.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files, Sys: sys})
	})
	if err != nil {
		return nil, key{}, err
	}
	if line, ok := readProc(p.Pid); ok { // not waited for yet, so it is there
		return child{p}, line.key, nil
	}
	return child{p}, key{pid: p.Pid}, nil
}

// foundling returns the process that a keeper had started when it died, before
// it could say so: the first of what bears the mark, and a child of this
// process by now.
func (w *walks) foundling(m mark) (first, key, bool) {
	pids, _ := childrenOf(w.self)
	var root proc
	for _, pid := range pids {
		p, ok := readProc(pid)
		if ok && p.ppid == w.self && m.on(pid) && (root.pid == 0 || p.start < root.start) {
			root = p
		}
	}
	if root.pid == 0 {
		return nil, key{}, false
	}
	m.put(root.pid)
	p, err := os.FindProcess(root.pid)
	return child{p}, root.key, err == nil
}

// lostPatience is how long a start that failed halfway waits for the end of
// what it began.
const lostPatience = time.Second

// view is the process table, arranged.
type view struct {
	all      map[int]proc
	children map[int][]proc
	sessions map[int][]proc
}

func look() view {
	v := view{all: make(map[int]proc), children: make(map[int][]proc), sessions: make(map[int][]proc)}
	for _, p := range table() {
		v.all[p.pid] = p
		v.children[p.ppid] = append(v.children[p.ppid], p)
		v.sessions[p.sid] = append(v.sessions[p.sid], p)
	}
	return v
}

// update walks the process table and settles who belongs to which tree.
func (w *walks) update() {
	w.starting.Lock()
	v := look()
	w.mu.Lock()
	w.starting.Unlock()
	defer w.mu.Unlock()
	taken := make(map[int]bool)
	for t := range w.trees {
		if !t.waited {
			taken[t.root.pid] = true
		}
	}
	w.adoptMarked(v)
	for t := range w.trees {
		for k, live := range t.settle(v) {
			if taken[k.pid] = true; !live && k != t.root && v.all[k.pid].ppid == w.self && (w.marks == nil || t.mark.proves(k.pid)) {
				reap(k.pid)
			}
		}
	}
	if w.marks == nil {
		w.adoptOrphans(v, taken)
	} else {
		w.adoptUnmarked(v, taken)
	}
}

// adoptUnmarked gives the keeper's orphans that bear no mark to a tree that is
// told to end and was there before them. They were of a tree, nobody knows of
// which, and have taken the mark off on purpose.
func (w *walks) adoptUnmarked(v view, taken map[int]bool) {
	home := w.keeper.number()
	if home == 0 {
		return
	}
	for _, p := range v.children[home] {
		if taken[p.pid] || w.outside(p.sid) || !p.live() {
			continue
		}
		if limit, err := limitOf(p.pid); err != nil || w.keeper.marked(limit.Cur) || w.keeper.marked(limit.Max) {
			continue
		}
		for t := range w.trees {
			if t.ending && p.start >= t.root.start {
				t.adopt(v, p)
			}
		}
	}
}

// adoptOrphans gives each tree the orphans that have its environment.
func (w *walks) adoptOrphans(v view, taken map[int]bool) {
	for _, home := range w.keeper.homes() {
		for _, p := range v.children[home] {
			if taken[p.pid] || w.outside(p.sid) || !p.live() {
				continue
			}
			for t := range w.trees {
				if p.start >= t.root.start && p.hasEnv(t.env) {
					t.adopt(v, p)
				}
			}
		}
	}
}

// adoptMarked gives each tree what bears its mark.
func (w *walks) adoptMarked(v view) {
	if w.marks == nil {
		return
	}
	for _, p := range v.all {
		limit, err := limitOf(p.pid)
		if err != nil || w.marks.spares(p.pid) {
			continue
		}
		for t := range w.trees {
			if _, known := t.members[p.key]; !known && t.mark.bears(p.pid, limit) {
				t.members[p.key] = p.live()
			}
		}
	}
}
