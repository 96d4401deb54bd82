//go:build linux

package proctree

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// asReal runs do on a thread whose real user and group are another's: who sets
// the limits of that one's processes has to be, see prlimit(2). In that moment
// these could slow the thread down, so it is never used for anything else: it
// ends with this.
func asReal(user *syscall.Credential, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good
		if unix.Gettid() == os.Getpid() {
			// The first thread cannot end. While it is held the next is another.
			defer runtime.UnlockOSThread()
			asReal(user, do)
			return
		}
		const same = ^uintptr(0)
		unix.RawSyscall(unix.SYS_SETRESGID, uintptr(user.Gid), same, same)
		unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user.Uid), same, same)
		do()
	}()
	<-done
}
