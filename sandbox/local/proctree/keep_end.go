//go:build linux

package proctree

import (
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reap waits for all that ends here, until all is over.
func (k *keeping) reap() {
	for {
		pid, err := nextEnd()
		if k.over.Load() {
			return
		}
		if err != nil { // only a start makes one
			var count [8]byte
			unix.Read(k.born, count[:])
			continue
		}
		k.collect(pid)
	}
}

// nextEnd waits until a child has ended and returns its number. That is in the
// part of the kernel's answer which package unix does not name: behind three
// words of four bytes, aligned to a pointer's size.
func nextEnd() (pid int, err error) {
	var info unix.Siginfo
	err = unix.EINTR
	for err == unix.EINTR {
		err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
	}
	const word = unsafe.Sizeof(uintptr(0))
	at := (3*4 + word - 1) / word * word
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), at))), err
}

// collect waits for what has ended and reports it if it is a first process. One
// that is not known may be the one that is being started, and is left until it
// has been reported: when this process is killed, what it has not waited for
// goes to the process above, with its status.
func (k *keeping) collect(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.starting && k.roots[pid] == "" {
		k.settled.Wait()
	}
	var status unix.WaitStatus
	if n, _ := unix.Wait4(pid, &status, 0, nil); n != pid {
		return
	}
	if id := k.roots[pid]; id != "" {
		delete(k.roots, pid)
		k.tell("exited", id, strconv.Itoa(int(status)))
	}
}

// finish kills what has grown from this process until nothing is left: all that
// loses its parent comes here, so no child means no descendant. Then goes what
// is not a descendant.
func (k *keeping) finish() {
	for pause := time.Millisecond; hasChildren(); pause = min(2*pause, maxPursuit) {
		stopped := stopAll()
		for _, p := range stopped {
			p.send(syscall.SIGKILL)
		}
		if pollEnd(stopped, pause); len(stopped) == 0 {
			time.Sleep(pause) // the dead are being waited for
		}
	}
	for _, r := range k.remains {
		Sweep(r)
	}
}

func hasChildren() bool {
	var info unix.Siginfo
	return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) != unix.ECHILD
}

// maxPursuit is the longest pause between two kills of what does not die.
const maxPursuit = time.Second

// stopAll stops all descendants, until no new one is found, and returns them.
func stopAll() (stopped []key) {
	seen := make(map[key]bool)
	for range stopRounds {
		fresh := false
		for _, p := range descendants(os.Getpid()) {
			if !seen[p.key] && p.live() {
				seen[p.key], fresh = true, true
				stopped = append(stopped, p.key)
				p.send(syscall.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	return stopped
}

// descendants lists what has grown from a process, by a look at all.
func descendants(pid int) (found []proc) {
	v := look()
	for todo := v.children[pid]; len(todo) > 0; todo = todo[1:] {
		found = append(found, todo[0])
		todo = append(todo, v.children[todo[0].pid]...)
	}
	return found
}
