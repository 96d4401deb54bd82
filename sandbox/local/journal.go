//go:build linux

package local

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/controld/controld/sandbox/local/proctree"
	"golang.org/x/sys/unix"
)

const (
	journalSuffix = ".journal"
	// journalKeep is how long a journal may grow before it is written anew.
	journalKeep = 1 << 20
	tempPrefix  = ".controld-"
)

// journal is the file in which a sandbox writes down, before it makes it, all
// that would be left behind if its process died. The process holds a lock on
// it for its life: a journal that can be locked is a dead one's. It outlives
// the process, not the machine, so nothing is synced.
type journal struct {
	file    *os.File        // nil: nothing is written down
	private func(do func()) // runs what reaches its directory

	mu   sync.Mutex
	size int64
	live map[string]bool // the temps that are there now, by line
	keep [][]byte        // lines that stay for the sandbox's life
}

// entry is one line of a journal.
type entry struct {
	Boot string `json:"boot,omitempty"`
	// Temp is a file's name in directory Dir, as bytes.
	Dir  []byte `json:"dir,omitempty"`
	Temp string `json:"temp,omitempty"`
	// Dev and Ino are the directory's.
	Dev     uint64            `json:"dev,omitempty"`
	Ino     uint64            `json:"ino,omitempty"`
	Process *proctree.Remains `json:"process,omitempty"`
}

func openJournal(dir, id string, private func(do func())) (*journal, error) {
	j := &journal{live: make(map[string]bool), private: private}
	if dir == "" {
		return j, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	private(func() {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			j.file, err = os.OpenFile(filepath.Join(dir, id+journalSuffix), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		}
	})
	if err == nil {
		err = unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = j.write(entry{Boot: bootID()}, true)
	}
	if err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

// bootID names this run of the machine; process numbers mean nothing beyond.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

func (j *journal) write(e entry, keep bool) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if keep {
		j.keep = append(j.keep, line)
	} else {
		j.live[string(line)] = true
	}
	return j.append(line)
}

func (j *journal) append(line []byte) error {
	if j.file == nil {
		return nil
	}
	n, err := j.file.Write(line)
	j.size += int64(n)
	return err
}

// remains records what proctree leaves.
func (j *journal) remains(r proctree.Remains) error {
	return j.write(entry{Process: &r}, r.Cgroup != "" || r.Mark != 0)
}

// temp records a temp's name before it is made. The function returned is
// called when the name is gone.
func (j *journal) temp(dir int, name string) (func(), error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return nil, err
	}
	path, err := os.Readlink(procFD(dir))
	if err != nil {
		return nil, err
	}
	e := entry{Dir: []byte(path), Temp: name, Dev: st.Dev, Ino: st.Ino}
	if err := j.write(e, false); err != nil {
		return nil, err
	}
	line, _ := json.Marshal(e)
	return func() { j.gone(string(line) + "\n") }, nil
}

// gone forgets a temp, and starts the file anew once it is long. A name is
// random, so a line too many does no harm.
func (j *journal) gone(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.live, line)
	if j.size < journalKeep || len(j.live) > 0 {
		return
	}
	if j.file.Truncate(0) == nil {
		j.size = 0
		for _, line := range j.keep {
			j.append(line)
		}
	}
}

// leave gives the journal up with what it names, to a later Sweep.
func (j *journal) leave() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}

// close removes the journal, unless a temp that it names is still there: one
// that could not be removed, or whose write hangs.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil || len(j.live) > 0 {
		return j.leave()
	}
	var err error
	j.private(func() { err = os.Remove(j.file.Name()) })
	return errors.Join(err, j.file.Close())
}

// Sweep removes what the journals in stateDir say that dead processes left:
// temps, and processes with all that grew from them. What was not written
// down is not touched, nor what a living process wrote down.
func Sweep(stateDir string) error { return SweepOf(stateDir, nil) }

// SweepOf is Sweep before commands run as that user: what is in stateDir is this
// process's own, and what was left is the user's. nil is this process's own, too.
func SweepOf(stateDir string, user *User) error {
	private := user.private()
	var names []string
	var err error
	private(func() { names, err = filepath.Glob(filepath.Join(globQuote(stateDir), "*"+journalSuffix)) })
	if err != nil {
		return fail("sweep", stateDir, err)
	}
	var errs []error
	for _, name := range names {
		if err := sweepJournal(name, private); err != nil {
			errs = append(errs, fail("sweep", stateDir, err))
		}
	}
	return errors.Join(errs...)
}

func globQuote(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

func sweepJournal(name string, private func(do func())) error {
	var f *os.File
	var err error
	private(func() { f, err = os.OpenFile(name, os.O_RDWR, 0) })
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if err == syscall.EWOULDBLOCK {
			return nil // its process lives
		}
		return err
	}
	sameBoot := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // cut off by the death
		}
		switch {
		case e.Boot != "":
			sameBoot = e.Boot == bootID()
		case e.Process != nil && sameBoot:
			proctree.Sweep(*e.Process)
		case e.Temp != "":
			sweepTemp(e)
		}
	}
	private(func() { err = os.Remove(name) })
	return err
}

// sweepTemp removes a temp if its directory is still the one it was made in.
func sweepTemp(e entry) {
	if !strings.HasPrefix(e.Temp, tempPrefix) || strings.Contains(e.Temp, "/") {
		return
	}
	dir, err := unix.Open(string(e.Dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if unix.Fstat(dir, &st) == nil && st.Ino == e.Ino {
		unix.Unlinkat(dir, e.Temp, 0)
	}
}
