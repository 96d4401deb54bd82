//go:build linux

package proctree

import (
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Remains names what has to go when the process that made it has died: a
// cgroup with all in it, all that bears a forest's mark, or a process with all
// that grew from it.
type Remains struct {
	Cgroup string `json:",omitempty"`
	Mark   uint64 `json:",omitempty"`
	PID    int    `json:",omitempty"`
	Start  uint64 `json:",omitempty"`
	// Env is a string of the environment that the processes were given.
	Env string `json:",omitempty"`
}

// CgroupPrefix begins the name of every cgroup made here. Sweep touches no
// other.
const CgroupPrefix = "controld-"

// sweepPatience is how long Sweep waits for what it killed.
const sweepPatience = 5 * time.Second

// Sweep kills and removes what a dead process left. What is not there any
// more, or is another process under the same number by now, is left alone.
func Sweep(r Remains) {
	switch {
	case r.Cgroup != "":
		sweepCgroup(r.Cgroup)
	case r.Mark != 0:
		sweepMark(r.Mark, r.Env)
	default:
		sweepProcess(key{r.PID, r.Start}, r.Env)
	}
}

// sweepMark kills what bears a dead forest's mark. The mark is random and too
// long to be hit by chance, so nothing else about a process is asked.
func sweepMark(base uint64, env string) {
	if base&numbers != 0 || base>>(leastBits-1) == 0 {
		return
	}
	m := &marks{base: base, env: env, nested: base>>62 == 0, tags: tagsWork()}
	newHunt(m.all(), true).empty(time.Now().Add(sweepPatience))
}

func sweepCgroup(dir string) {
	if !strings.HasPrefix(filepath.Base(dir), CgroupPrefix) {
		return
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return
	}
	killCgroup(fd)
	if events, err := unix.Openat(fd, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		g := cgroup{events: events}
		g.waitEmpty(sweepPatience)
		unix.Close(events)
	}
	removeCgroups(dir)
}

// sweepProcess kills a session by the process that led it, and what grew from
// its members. The leader itself may be gone: its number stays its session's
// while a member lives. Then one of them has to bear the mark, lest another
// session got the number after all.
func sweepProcess(leader key, env string) {
	p, there := readProc(leader.pid)
	if there && p.start != leader.start || !there && !sessionHas(leader.pid, env) {
		return
	}
	w := &walks{trees: make(map[*walked]struct{}), self: -1, sid: -1}
	t := &walked{all: w, root: leader, members: make(map[key]bool), sessions: map[int]bool{leader.pid: true}}
	w.trees[t] = struct{}{}
	t.kill()
	t.waitEmpty(sweepPatience)
}

func sessionHas(sid int, env string) bool {
	for _, p := range table() {
		if p.sid == sid && p.hasEnv(env) {
			return true
		}
	}
	return false
}
