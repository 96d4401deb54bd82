package faultfs

import (
	"errors"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrMissing says what is missing for a file system of one's own here, and
// how to get it.
var ErrMissing = errors.New("missing")

// Call is a kind of request of the kernel's.
type Call string

// The calls that faults can strike. A directory is opened and listed like a
// file, by Opendir and Readdir, a call for each entry.
const (
	Lookup   Call = "lookup"
	Getattr  Call = "getattr"
	Access   Call = "access" // before chdir(2)
	Setattr  Call = "setattr"
	Open     Call = "open"
	Create   Call = "create"
	Read     Call = "read"
	Write    Call = "write"
	Allocate Call = "allocate"
	Flush    Call = "flush" // close(2) of a descriptor
	Fsync    Call = "fsync"
	Opendir  Call = "opendir"
	Readdir  Call = "readdir"
	Mkdir    Call = "mkdir"
	Link     Call = "link"
	Rename   Call = "rename" // by the new name
	Unlink   Call = "unlink"
	Rmdir    Call = "rmdir"
)

// Fault is what happens to some of the calls of a kind. What is not set does
// not happen; what is set happens in the order of the fields.
type Fault struct {
	Call Call
	// Name is a pattern of [path.Match] for the name of the file, or for that
	// of its directory and its own where it has a slash; empty is any.
	Name string
	// From is the first call that is struck, 0 and 1 the very first; Times how
	// many are, 0 all from there on.
	From, Times int

	// Stall has the call wait for [FS.Release], whatever signal comes.
	Stall bool
	// Errno has it fail, without having done anything.
	Errno syscall.Errno
	// Rate is how many bytes a second are read or written.
	Rate int64
	// Short is the most that is read or written at once.
	Short int
	// Drop answers a write or a sync as done and does nothing.
	Drop bool
	// Grown is how many bytes more a file seems to have.
	Grown int64
}

// FS is a file system with faults. Its methods may be called from anywhere.
type FS struct {
	mounted

	mu       sync.Mutex
	faults   []Fault
	met      []int // calls that each fault could have struck
	struck   int
	waiting  int
	released chan struct{}
}

// Plan replaces what happens to calls from now on; nothing does to begin with.
// What stands still goes on doing so.
func (f *FS) Plan(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.met, f.struck = faults, make([]int, len(faults)), 0
}

// Struck is how many calls were struck since the last plan.
func (f *FS) Struck() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.struck
}

// Waiting is how many calls stand still.
func (f *FS) Waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// Release forgets the plan and lets what stands still go on.
func (f *FS) Release() {
	f.Plan()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.released != nil {
		close(f.released)
		f.released = nil
	}
}

// meet returns what happens to a call on a file, after it has stood still.
func (f *FS) meet(call Call, file string) Fault {
	f.mu.Lock()
	var hit Fault
	for i, fault := range f.faults {
		if fault.matches(call, file) {
			if f.met[i]++; fault.strikes(f.met[i]) {
				f.struck++
				hit = fault
				break
			}
		}
	}
	f.mu.Unlock()
	if hit.Stall {
		f.stall()
	}
	return hit
}

func (f Fault) matches(call Call, file string) bool {
	if f.Call != call {
		return false
	}
	dir, name := path.Split(file)
	if strings.Contains(f.Name, "/") {
		name = path.Join(path.Base(dir), name)
	}
	match, _ := path.Match(f.Name, name)
	return match || f.Name == ""
}

// strikes tells whether the n-th call is struck, from 1.
func (f Fault) strikes(n int) bool {
	from := max(f.From, 1)
	return n >= from && (f.Times == 0 || n < from+f.Times)
}

// stall waits for the release.
func (f *FS) stall() {
	f.mu.Lock()
	if f.released == nil {
		f.released = make(chan struct{})
	}
	released := f.released
	f.waiting++
	f.mu.Unlock()
	<-released
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting--
}

// most is how many of n bytes are moved at once.
func (f Fault) most(n int) int {
	if f.Short > 0 {
		return min(n, f.Short)
	}
	return n
}

// pace takes the time that n bytes take.
func (f Fault) pace(n int) {
	if f.Rate > 0 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(f.Rate))
	}
}
