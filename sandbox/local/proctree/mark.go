//go:build linux

package proctree

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox/local/thread"
)

const (
	// numberBits are a mark's lowest bits: the tree within its forest.
	numberBits = 24
	numbers    = 1<<numberBits - 1
	// leastBits is how wide a mark has to be to be told from chance.
	leastBits = 54
)

// markLimit is the limit that marks are: of file locks, or of the time on
// processors, in seconds, where the first cannot be set, as in gVisor. A mark is
// more of them than there will be.
var markLimit = sync.OnceValue(func() int {
	for _, resource := range []int{unix.RLIMIT_LOCKS, unix.RLIMIT_CPU} {
		var own unix.Rlimit
		if unix.Prlimit(0, resource, nil, &own) == nil && unix.Prlimit(0, resource, &own, nil) == nil {
			return resource
		}
	}
	return unix.RLIMIT_LOCKS
})

// limitName is what /proc/PID/limits calls it.
func limitName() string {
	if markLimit() == unix.RLIMIT_CPU {
		return "Max cpu time"
	}
	return "Max file locks"
}

// marks gives each tree a number that its processes bear and pass on: the
// limit of file locks (RLIMIT_LOCKS), which kernels have kept since 2.4 and
// not looked at. It goes over fork and exec; neither an empty environment nor
// a new session nor another parent takes it away, and anyone may read it. A
// process that sets the limit itself leaves; no program does by chance.
//
// A forest's marks share their upper bits, which are random. One that runs
// inside a tree of another keeps that one's mark as the hard limit.
type marks struct {
	base   uint64
	nested bool
	tags   bool // this process can give tags
	keeper *Keeper
	env    string              // see bears
	user   *syscall.Credential // who bears them; nil: this process's own
	slots  *slots              // nil: births come one at a time
	last   atomic.Uint64
}

// openMarks returns nil where the kernel does not play along.
func openMarks(env string) *marks {
	own, err := limitOf(os.Getpid())
	if err != nil {
		return nil
	}
	width := bits.Len64(own.Max) - 1
	if width < leastBits {
		return nil
	}
	var b [8]byte
	rand.Read(b[:])
	top := uint64(1) << (width - 1)
	base := (binary.NativeEndian.Uint64(b[:])&(top-1) | top) &^ numbers
	return &marks{base: base, nested: own.Max != unix.RLIM_INFINITY, tags: tagsWork(), env: env}
}

// next returns a mark for a tree, which release gives back. It comes round
// after 16 million.
func (m *marks) next() mark {
	if m == nil {
		return mark{}
	}
	n := m.last.Add(1) & numbers
	if n == 0 {
		n = m.last.Add(1) & numbers
	}
	return mark{marks: m, value: m.base | n, slot: m.slots.take()}
}

// all is the mark of all trees of a forest.
func (m *marks) all() mark {
	if m == nil {
		return mark{}
	}
	return mark{marks: m, value: m.base, others: numbers}
}

// homes are the processes that the orphans of a forest with marks come to.
func (m *marks) homes() []int {
	if m == nil {
		return nil
	}
	return m.keeper.homes()
}

// spares tells whether a process is one that bears marks for its children.
func (m *marks) spares(pid int) bool { return pid == os.Getpid() || m != nil && m.keeper.is(pid) }

// mark is one tree's, or all of a forest's. The zero mark is on nothing.
type mark struct {
	*marks
	value  uint64
	others uint64 // bits that do not matter
	slot   int    // 0: none
}

// release is called when the tree is empty.
func (m mark) release() {
	if m.marks != nil {
		m.slots.give(m.slot)
	}
}

// birth starts a process that bears the mark from its first moment on, so
// that it is told even when this process dies right now. Other children that
// are started meanwhile bear it as well, see bears.
//
// With a slot it is born with the mark of all trees and, in its tag, the slot,
// and births go side by side. Without one the mark alone tells it.
func (m mark) birth(begin func() (*os.Process, error)) (*os.Process, error) {
	start := func() (*os.Process, error) { return ownScore().bear(begin) }
	if m.marks == nil {
		return start()
	}
	born := m.value
	if m.slot != 0 {
		born = m.base
	}
	ownLimit.bear(born)
	defer ownLimit.drop()
	p, err := tagged(m.slot, start)
	if err == nil {
		m.put(p.Pid)
	}
	return p, err
}

// put marks a child that has not been waited for.
func (m mark) put(pid int) {
	if m.marks == nil {
		return
	}
	limit := unix.Rlimit{Cur: m.value, Max: m.value}
	if m.nested {
		limit.Max = unix.RLIM_INFINITY
		if own, err := limitOf(os.Getpid()); err == nil {
			limit.Max = own.Max
		}
	}
	set := func() { unix.Prlimit(pid, markLimit(), &limit, nil) }
	if m.user == nil {
		set()
		return
	}
	// Who sets the limits of another user's process is really him, see
	// prlimit(2). In that moment his commands could slow the thread down.
	thread.Spend(func() {
		thread.Real(m.user.Uid, m.user.Gid)
		set()
	})
}

// bears tells whether a process with this limit is of the tree. The hard
// limit settles it. The soft limit alone is what a process has that grew from
// the first one before put was done (on a busy machine that takes long), or
// another part's child that was born at the wrong moment. The tag tells these
// apart, and where it cannot be had or read, the environment.
func (m mark) bears(pid int, limit unix.Rlimit) bool {
	if m.marks == nil {
		return false
	}
	if limit.Max&^m.others == m.value {
		return true
	}
	if m.slot != 0 && limit.Cur == m.base {
		slot, readable := readTag(pid)
		return readable && slot == m.slot
	}
	if limit.Cur&^m.others != m.value {
		return false
	}
	if m.nested {
		return true
	}
	slot, readable := readTag(pid)
	if readable && (slot >= 0 || m.tags) {
		return slot >= 0
	}
	return envAllows(pid, m.env)
}

// may tells whether a process with this soft limit may be of the tree.
func (m mark) may(soft uint64) bool {
	return soft&^m.others == m.value || m.slot != 0 && soft == m.base
}

// proves tells whether a process bears the mark beyond doubt, a dead one
// included.
func (m mark) proves(pid int) bool {
	if m.marks == nil {
		return false
	}
	limit, err := limitOf(pid)
	return err == nil && (limit.Max&^m.others == m.value || limit.Cur&^m.others == m.value && hasTag(pid)) // an unreadable tag proves nothing
}

// on tells whether a process bears the mark.
func (m mark) on(pid int) bool {
	if m.marks == nil || m.spares(pid) {
		return false
	}
	limit, err := limitOf(pid)
	return err == nil && m.bears(pid, limit)
}

// limitOf reads a process's limit. What was made another user's by an exec is
// only seen through /proc.
func limitOf(pid int) (unix.Rlimit, error) {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, markLimit(), nil, &limit)
	if err != unix.EPERM {
		return limit, err
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return limit, unix.ESRCH
	}
	_, rest, _ := strings.Cut(string(text), limitName())
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return limit, unix.ENOENT
	}
	limit.Cur, limit.Max = parseLimit(fields[0]), parseLimit(fields[1])
	return limit, nil
}

func parseLimit(s string) uint64 {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return n
	}
	return unix.RLIM_INFINITY
}
