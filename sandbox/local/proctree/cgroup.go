//go:build linux

package proctree

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFree is how many empty cgroups are kept for the next trees: making and
// removing one costs more than all the rest of the bookkeeping.
const maxFree = 64

// cgroups is a directory of cgroups, one a tree.
type cgroups struct {
	dir string

	mu   sync.Mutex
	free []*cgroup
	last int
}

// openCgroups makes the forest's own cgroup below the one this process is in,
// and proves that processes can be started in it; nil where they cannot.
func openCgroups(o Options) *cgroups {
	parent, ok := ownCgroup()
	if !ok {
		return nil
	}
	c := &cgroups{dir: filepath.Join(parent, o.Name)}
	if o.Record != nil && o.Record(Remains{Cgroup: c.dir}) != nil {
		return nil
	}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil
	}
	if !c.works() {
		c.close()
		return nil
	}
	return c
}

// works starts a process in a cgroup of the forest.
func (c *cgroups) works() bool {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer null.Close()
	proc, g, err := c.start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", ":"}, Dir: "/", Files: []*os.File{null, null, null}})
	if err != nil {
		return false
	}
	state, err := proc.Wait()
	if !g.waitEmpty(time.Second) {
		return false
	}
	g.release()
	return err == nil && state.Success()
}

// ownCgroup finds the directory of this process's cgroup of version 2, which
// is mounted alone or beside the hierarchies of version 1.
func ownCgroup() (string, bool) {
	own, ok := lineOf("/proc/self/cgroup", func(line string) (string, bool) { return strings.CutPrefix(line, "0::") })
	if !ok {
		return "", false
	}
	return lineOf("/proc/self/mountinfo", func(line string) (string, bool) {
		fields := strings.Fields(line)
		for i, field := range fields {
			if field != "-" || i < 6 || i+1 >= len(fields) || fields[i+1] != "cgroup2" {
				continue
			}
			return belowMount(unescape(fields[3]), unescape(fields[4]), own)
		}
		return "", false
	})
}

// belowMount returns where a cgroup is found under a mount that shows the
// hierarchy from top on.
func belowMount(top, mount, own string) (string, bool) {
	rel, err := filepath.Rel(top, own)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	dir := filepath.Join(mount, rel)
	_, err = os.Stat(filepath.Join(dir, "cgroup.procs"))
	return dir, err == nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func lineOf(file string, match func(string) (string, bool)) (string, bool) {
	f, err := os.Open(file)
	if err != nil {
		return "", false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if found, ok := match(lines.Text()); ok {
			return found, true
		}
	}
	return "", false
}

func (c *cgroups) name() string { return KindCgroup }

// start implements holder.
func (c *cgroups) start(cmd Command) (*os.Process, group, error) {
	g, err := c.take()
	if err != nil {
		return nil, nil, err
	}
	sys := &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: g.fd}
	proc, err := os.StartProcess(cmd.Path, cmd.Args, &os.ProcAttr{Dir: cmd.Dir, Env: cmd.Env, Files: cmd.Files, Sys: sys})
	if err != nil {
		g.release()
		return nil, nil, err
	}
	return proc, g, nil
}

// take returns an empty cgroup.
func (c *cgroups) take() (*cgroup, error) {
	c.mu.Lock()
	if n := len(c.free); n > 0 {
		g := c.free[n-1]
		c.free = c.free[:n-1]
		c.mu.Unlock()
		g.oomBefore = g.countOOM()
		return g, nil
	}
	c.last++
	dir := filepath.Join(c.dir, strconv.Itoa(c.last))
	c.mu.Unlock()
	return c.make(dir)
}

func (c *cgroups) make(dir string) (*cgroup, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	g := &cgroup{all: c, dir: dir, fd: -1, events: -1}
	var err error
	if g.fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		if g.events, err = unix.Openat(g.fd, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			err = unix.Faccessat(g.fd, "cgroup.kill", unix.W_OK, 0)
		}
	}
	if err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// close removes the forest's cgroups; all trees are gone.
func (c *cgroups) close() {
	c.mu.Lock()
	free := c.free
	c.free = nil
	c.mu.Unlock()
	for _, g := range free {
		g.remove()
	}
	os.Remove(c.dir)
}

// cgroup is the cgroup of one tree.
type cgroup struct {
	all        *cgroups
	dir        string
	fd, events int
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
	return !g.waitEmpty(100 * time.Millisecond)
}

// procs lists the processes of a cgroup and of those that the command itself
// made below it.
func (g *cgroup) procs(dir string) []int {
	var pids []int
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
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
// was opened as is known to be in the cgroup.
func (g *cgroup) signal(sig syscall.Signal) {
	fds := make(map[int]int)
	for _, pid := range g.procs(g.dir) {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			fds[pid] = fd
		}
	}
	for _, pid := range g.procs(g.dir) {
		if fd, ok := fds[pid]; ok {
			unix.PidfdSendSignal(fd, sig, nil, 0)
		}
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// kill implements group. A cgroup that was killed once may kill what is
// started in it later, so it is not used again.
func (g *cgroup) kill() {
	g.killed.Store(true)
	killCgroup(g.fd)
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

// waitEmpty implements group. The kernel reports each change of the events
// file as a priority event.
func (g *cgroup) waitEmpty(patience time.Duration) bool {
	return waitEmpty(g.events, g.populated, patience)
}

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
	for _, sub := range subdirs(g.dir) {
		removeCgroups(sub)
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
