//go:build linux

package proctree

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxFree is how many empty cgroups are kept for the next trees: making and
// removing one costs more than all the rest of the bookkeeping.
const maxFree = 64

// cgroups is a directory of cgroups, one a tree.
type cgroups struct {
	dir    string
	marks  *marks
	limits Limits
	user   *syscall.Credential

	mu   sync.Mutex
	free []*cgroup
	last int
}

// openCgroups makes the forest's own cgroup below the one this process is in,
// and proves that processes can be started in it; nil where they cannot. Where
// they can, but without the limits that were asked for, it is an error.
func openCgroups(o Options, m *marks) (*cgroups, error) {
	parent, ok := ownCgroup()
	if !ok {
		return nil, nil
	}
	if filepath.Base(parent) == ownLeaf { // moved there for an earlier forest
		parent = filepath.Dir(parent)
	}
	c := &cgroups{dir: filepath.Join(parent, o.Name), marks: m, limits: o.Limits, user: o.User}
	if o.Record != nil && o.Record(Remains{Cgroup: c.dir}) != nil {
		return nil, nil
	}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, nil
	}
	if err := c.limits.delegate(parent, c.dir); err != nil {
		c.close()
		return nil, fmt.Errorf("%w: %w", ErrNoLimits, err)
	}
	if !c.works() {
		c.close()
		return nil, nil
	}
	if m != nil && m.tags {
		m.slots = newSlots(m.base)
	}
	return c, nil
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
	status, err := proc.wait()
	if !g.waitEmpty(time.Second) {
		return false
	}
	g.release()
	return err == nil && status == 0
}

func (c *cgroups) name() string { return KindCgroup }

// start implements holder.
func (c *cgroups) start(cmd Command) (first, group, error) {
	g, err := c.take()
	if err != nil {
		return nil, nil, err
	}
	sys := &syscall.SysProcAttr{Setsid: true, Credential: c.user, UseCgroupFD: true, CgroupFD: g.fd}
	proc, err := g.mark.birth(func() (*os.Process, error) {
		return os.StartProcess(cmd.Path, cmd.Args, &os.ProcAttr{Dir: cmd.Dir, Env: cmd.Env, Files: cmd.Files, Sys: sys})
	})
	if err != nil {
		g.release()
		return nil, nil, err
	}
	return child{proc}, g, nil
}

// take returns an empty cgroup.
func (c *cgroups) take() (*cgroup, error) {
	c.mu.Lock()
	if n := len(c.free); n > 0 {
		g := c.free[n-1]
		c.free = c.free[:n-1]
		c.mu.Unlock()
		g.mark = c.marks.next()
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
	g := &cgroup{all: c, mark: c.marks.next(), dir: dir, fd: -1, events: -1}
	err := c.limits.apply(dir)
	if err != nil {
		// nothing is open yet
	} else if g.fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		if g.events, err = unix.Openat(g.fd, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			err = unix.Faccessat(g.fd, "cgroup.kill", unix.W_OK, 0)
		}
	}
	if err != nil {
		g.mark.release()
		g.remove()
		return nil, err
	}
	g.accounted = unix.Faccessat(g.fd, "memory.events", unix.R_OK, 0) == nil
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
