//go:build linux

package local

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	closedFirst = 20 * time.Microsecond
	closedPause = time.Millisecond
	// closedMost bounds the wait for a child that does not get to its exec.
	closedMost = 2 * time.Second
)

// awaitClosed waits until nobody has the file open for writing, given a
// descriptor for reading, after this process has closed it. A child that is
// being started somewhere holds a copy of every descriptor until its exec is
// done; while it does, to run the file is an error (ETXTBSY).
//
// ForkLock is not enough. Go lets it go when the kernel wakes the parent of a
// vfork, and that is before the child's descriptors are closed. The kernel
// grants a read lease only on a file that nobody has open for writing, which
// is the very question; where there are no leases ForkLock has to do.
func awaitClosed(fd int) {
	syscall.ForkLock.RLock()
	//lint:ignore SA2001 passing through is all
	syscall.ForkLock.RUnlock()
	deadline := time.Now().Add(closedMost)
	for pause := closedFirst; time.Now().Before(deadline); pause = min(2*pause, closedPause) {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
		if err == nil {
			unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		}
		if err != syscall.EAGAIN {
			return
		}
		time.Sleep(pause)
	}
}
