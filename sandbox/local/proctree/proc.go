//go:build linux

package proctree

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// key is a process for all times: numbers are used again, a number with its
// start time is not.
type key struct {
	pid   int
	start uint64
}

// proc is a line of the process table.
type proc struct {
	key
	ppid, sid int
	state     byte
}

// live tells a process from a zombie.
func (p proc) live() bool { return p.state != 'Z' && p.state != 'X' }

// readProc reads one process; false when there is none.
func readProc(pid int) (proc, bool) {
	var buf [1024]byte
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return proc{}, false
	}
	n, err := unix.Read(fd, buf[:])
	unix.Close(fd)
	if err != nil {
		return proc{}, false
	}
	return parseStat(pid, buf[:n])
}

// parseStat parses /proc/PID/stat; the name in it may hold anything.
func parseStat(pid int, line []byte) (proc, bool) {
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) < 20 {
		return proc{}, false
	}
	p := proc{key: key{pid: pid}, state: fields[0][0]}
	var err1, err2, err3 error
	p.ppid, err1 = strconv.Atoi(string(fields[1]))
	p.sid, err2 = strconv.Atoi(string(fields[3]))
	p.start, err3 = strconv.ParseUint(string(fields[19]), 10, 64)
	return p, err1 == nil && err2 == nil && err3 == nil
}

// table reads all processes.
func table() []proc {
	pids := numbersOfAll()
	procs := make([]proc, 0, len(pids))
	for _, pid := range pids {
		if p, ok := readProc(pid); ok {
			procs = append(procs, p)
		}
	}
	return procs
}

// childrenOf lists the direct children of a process; false where the kernel
// keeps no such list.
func childrenOf(pid int) ([]int, bool) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, true // gone
	}
	var pids []int
	for _, task := range tasks {
		children, err := pidsIn(dir + task.Name() + "/children")
		if err != nil {
			if _, gone := os.Stat(dir + task.Name()); gone == nil && os.IsNotExist(err) {
				return nil, false
			}
			continue
		}
		pids = append(pids, children...)
	}
	return pids, true
}

// orphansOf lists the children that subreapers were given. The kernel hands
// them to the first thread that lives, which in a Go program is the first of
// all; some that this thread started itself are among them.
func orphansOf(homes []int) (pids []int, ok bool) {
	for _, pid := range homes {
		some, err := pidsIn("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(pid) + "/children")
		if err != nil {
			return nil, false
		}
		pids = append(pids, some...)
	}
	return pids, true
}

// pidsIn reads a file in which the kernel lists processes.
func pidsIn(path string) (pids []int, err error) {
	text, err := os.ReadFile(path)
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// open returns a descriptor of exactly this process.
func (k key) open() (int, error) {
	fd, err := unix.PidfdOpen(k.pid, 0)
	if err != nil {
		return -1, err
	}
	if p, ok := readProc(k.pid); !ok || p.start != k.start {
		unix.Close(fd)
		return -1, syscall.ESRCH
	}
	return fd, nil
}

// send signals exactly this process.
func (k key) send(sig syscall.Signal) {
	if fd, err := k.open(); err == nil {
		unix.PidfdSendSignal(fd, sig, nil, 0)
		unix.Close(fd)
	}
}

// hasEnv tells whether a process was started with an environment string.
func (k key) hasEnv(entry string) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(k.pid) + "/environ")
	return err == nil && holdsEntry(text, entry)
}

func holdsEntry(text []byte, entry string) bool {
	for s := range bytes.SplitSeq(text, []byte{0}) {
		if string(s) == entry {
			return true
		}
	}
	return false
}

// reap collects one zombie child by its number.
func reap(pid int) {
	var status unix.WaitStatus
	unix.Wait4(pid, &status, unix.WNOHANG, nil)
}
