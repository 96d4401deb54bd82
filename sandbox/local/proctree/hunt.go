//go:build linux

package proctree

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// eagerLooks is how many looks follow one another without a pause, to
	// catch what forks and ends faster than a look takes.
	eagerLooks = 400
	maxRest    = 20 * time.Millisecond
)

// hunt looks for the living processes of a mark, and kills them if it shall.
type hunt struct {
	mark mark
	kill bool
	// dead are the marked numbers that were found dead. A new one may have
	// forked a moment before its end, behind the look's back.
	dead map[int]bool
	// others are numbers of other users' processes that bear no mark: to
	// find that out is slow.
	others map[int]bool
}

func newHunt(m mark, kill bool) *hunt {
	return &hunt{mark: m, kill: kill, dead: make(map[int]bool), others: make(map[int]bool)}
}

// empty looks until two looks in a row find nothing and miss nothing. Without
// killing it ends at the first that lives. False: something lives, or too
// much was going on to say that nothing does.
func (h *hunt) empty(deadline time.Time) bool {
	if h.mark.marks == nil {
		return true
	}
	for looks, clean := 1, 0; ; looks++ {
		living, missed := h.look()
		switch {
		case living == 0 && !missed:
			if clean++; clean == 2 {
				return true
			}
			continue
		case living > 0 && !h.kill:
			return false
		}
		clean = 0
		if time.Now().After(deadline) {
			return false
		}
		if looks > eagerLooks {
			time.Sleep(min(time.Duration(looks-eagerLooks)*time.Millisecond, maxRest))
		}
	}
}

// look goes once over all processes, over the orphans of this one first: what
// has just lost its parent is among them. It returns how many lived, and
// whether some may have been missed.
//
// What is gone when it is met may have been anybody's, and on a busy machine
// something always is; only an orphan of this process or its keeper that is
// gone counts as missed, since whatever of the tree has lost its parent is such
// an orphan.
func (h *hunt) look() (living int, missed bool) {
	for n := 1; h.orphans(); n++ {
		if n == orphanLooks || !h.kill {
			missed = true
			break
		}
	}
	for _, pid := range numbersOfAll() {
		here, gone := h.meet(pid, false)
		if here {
			living++
		}
		missed = missed || gone
	}
	return living, missed
}

// orphanLooks bounds the looks for orphans alone.
const orphanLooks = 50

// orphans meets the orphans of this process or its keeper, which is much faster
// than meeting all. It returns whether that is worth another look. A keeper
// waits for the dead at once: they are not there to be found.
func (h *hunt) orphans() (more bool) {
	pids, _ := orphansOf(h.mark.homes())
	for _, pid := range pids {
		living, moved := h.meet(pid, true)
		more = more || living || moved
	}
	return more
}

// numbersOfAll lists the process numbers in use.
func numbersOfAll() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// meet deals with one process: whether it is of the tree and lives, and
// whether it was on its way, so that another look is due. near says that one
// which is gone is taken for the tree's.
func (h *hunt) meet(pid int, near bool) (living, moved bool) {
	if h.others[pid] || h.mark.spares(pid) {
		return false, false
	}
	limit, err := limitOf(pid)
	if err != nil {
		return false, near && err == unix.ESRCH
	}
	if !h.mark.bears(pid, limit) {
		if limit.Cur == unix.RLIM_INFINITY && unix.Prlimit(pid, markLimit(), nil, &limit) == unix.EPERM {
			h.others[pid] = true
		}
		if !h.mark.may(limit.Cur) {
			return false, false
		}
		_, err := limitOf(pid) // it may have gone before it was asked for more
		return false, err == unix.ESRCH
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, true
	}
	defer unix.Close(fd)
	// The number was the tree's before and is the tree's now that the
	// descriptor is there. If it has changed hands in between, the
	// descriptor is a dead process's or the tree's again.
	if !h.mark.on(pid) {
		return false, true
	}
	if ended(fd) {
		fresh := !h.dead[pid]
		h.dead[pid] = true
		return false, fresh
	}
	delete(h.dead, pid)
	if h.kill {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	return true, false
}

// ended tells whether a process is dead, waited for or not.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, _ := unix.Poll(fds, 0)
	return n > 0
}

// signal sends a signal to what bears the mark and is not excluded.
func (m mark) signal(sig syscall.Signal, except func(pid int) bool) {
	if m.marks == nil {
		return
	}
	for _, pid := range numbersOfAll() {
		if except(pid) || !m.on(pid) {
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			if m.on(pid) {
				unix.PidfdSendSignal(fd, sig, nil, 0)
			}
			unix.Close(fd)
		}
	}
}
