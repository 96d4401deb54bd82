//go:build linux

package proctree

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is the cgroup of one tree.
type cgroup struct {
	all        *cgroups
	mark       mark // on what has left the cgroup, too
	dir        string
	fd, events int
	accounted  bool // memory is
	oomBefore  int
	killed     atomic.Bool
}

// populated reads whether a process is left, a dying one included.
func (g *cgroup) populated() bool {
	var buf [256]byte
	n, err := unix.Pread(g.events, buf[:], 0)
	return err != nil || bytes.Contains(buf[:max(n, 0)], []byte("populated 1"))
}

// alive implements group.
func (g *cgroup) alive() bool {
	if !g.populated() {
		return false
	}
	for _, pid := range g.procs(g.dir) {
		if p, ok := readProc(pid); ok && p.live() {
			return true
		}
	}
	// Only dying processes: a member is counted until the kernel is done
	// with it, which may be after its parent has seen the end.
	return !waitEmpty(g.events, g.populated, 100*time.Millisecond)
}

// procs lists the processes of a cgroup and of those that the command itself
// made below it.
func (g *cgroup) procs(dir string) []int {
	pids, _ := pidsIn(filepath.Join(dir, "cgroup.procs"))
	for _, sub := range subdirs(dir) {
		pids = append(pids, g.procs(sub)...)
	}
	return pids
}

func subdirs(dir string) []string {
	var subs []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			subs = append(subs, filepath.Join(dir, e.Name()))
		}
	}
	return subs
}

// signal implements group. A number is only used while the descriptor that it
// was opened as is known to be in the cgroup. Parents come first, as in
// walked.signal.
func (g *cgroup) signal(sig syscall.Signal) {
	fds := make(map[int]int)
	for _, pid := range g.procs(g.dir) {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			fds[pid] = fd
		}
	}
	var members []key
	for _, pid := range g.procs(g.dir) {
		if _, ok := fds[pid]; ok {
			members = append(members, key{pid: pid})
		}
	}
	for _, k := range parentsFirst(members, parentOf) {
		unix.PidfdSendSignal(fds[k.pid], sig, nil, 0)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	g.mark.signal(sig, func(pid int) bool { _, in := fds[pid]; return in })
}

// kill implements group. A cgroup that was killed once may kill what is
// started in it later, so it is not used again.
func (g *cgroup) kill() {
	g.killed.Store(true)
	killCgroup(g.fd)
	newHunt(g.mark, true).look()
}

func killCgroup(dir int) error {
	fd, err := unix.Openat(dir, "cgroup.kill", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("1"))
	return err
}

// waitEmpty implements group. What has moved itself to another cgroup is
// looked for by its mark.
func (g *cgroup) waitEmpty(patience time.Duration) bool {
	deadline := time.Now().Add(patience)
	if !waitEmpty(g.events, g.populated, patience) {
		return false
	}
	for !newHunt(g.mark, g.killed.Load()).empty(deadline) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(min(time.Until(deadline), pollPause))
	}
	return true
}

// pollPause lies between two looks for what no event is sent for.
const pollPause = 10 * time.Millisecond

// waitEmpty waits for a cgroup to become empty. The kernel reports each
// change of the events file as a priority event.
func waitEmpty(events int, populated func() bool, patience time.Duration) bool {
	deadline := time.Now().Add(patience)
	for populated() {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		fds := []unix.PollFd{{Fd: int32(events), Events: unix.POLLPRI}}
		unix.Poll(fds, int(min(left, time.Hour)/time.Millisecond)+1)
	}
	return true
}

// oomKills implements group.
func (g *cgroup) oomKills() int { return g.countOOM() - g.oomBefore }

// countOOM reads the kernel's count, zero where memory is not accounted.
func (g *cgroup) countOOM() int {
	if !g.accounted {
		return 0
	}
	fd, err := unix.Openat(g.fd, "memory.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var buf [512]byte
	n, _ := unix.Read(fd, buf[:])
	for line := range strings.Lines(string(buf[:max(n, 0)])) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			k, _ := strconv.Atoi(strings.TrimSpace(count))
			return k
		}
	}
	return 0
}

func (g *cgroup) exited() {}

// release implements group.
func (g *cgroup) release() {
	g.mark.release()
	if g.divided() {
		for _, sub := range subdirs(g.dir) {
			removeCgroups(sub)
		}
	}
	g.all.mu.Lock()
	keep := len(g.all.free) < maxFree && !g.killed.Load()
	if keep {
		g.all.free = append(g.all.free, g)
	}
	g.all.mu.Unlock()
	if !keep {
		g.remove()
	}
}

// divided tells whether the command made cgroups below its own. The kernel
// counts them in the directory's links (kernfs), which is much cheaper to ask
// for than the list.
func (g *cgroup) divided() bool {
	var st unix.Stat_t
	return unix.Fstat(g.fd, &st) != nil || st.Nlink != 2
}

func (g *cgroup) remove() {
	if g.events >= 0 {
		unix.Close(g.events)
	}
	if g.fd >= 0 {
		unix.Close(g.fd)
	}
	removeCgroups(g.dir)
}

// removeCgroups removes a cgroup without processes and those below it.
func removeCgroups(dir string) {
	for _, sub := range subdirs(dir) {
		removeCgroups(sub)
	}
	unix.Rmdir(dir)
}
