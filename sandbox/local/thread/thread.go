//go:build linux

// Package thread has something done on a thread that is another one's than all
// others of its process, by its user or its limits, and that is gone behind it.
//
// What does not belong here: what is done there.
package thread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Spend runs do on a thread that runs nothing else ever after: whatever do makes
// of it ends with it, and no other thread inherits it.
func Spend(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good
		if unix.Gettid() == os.Getpid() {
			// The first thread cannot end. While it is held the next is another.
			defer runtime.UnlockOSThread()
			Spend(do)
			return
		}
		do()
	}()
	<-done
}

const same = ^uintptr(0)

// Real makes a user and a group this thread's real ones. What it is else it
// stays, but that it reaches files as its effective user.
func Real(uid, gid uint32) {
	unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), same, same)
	unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), same, same)
}

// Effective makes a user and a group this thread's effective ones, as whom it
// also reaches files.
func Effective(uid, gid int) {
	unix.RawSyscall(unix.SYS_SETRESGID, same, uintptr(gid), same)
	unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same)
}
