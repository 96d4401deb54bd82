//go:build linux

package proctree

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeSubreaper has the kernel hand orphans of this process's descendants
// to it. It stays so for the life of the process: other forests may need it.
func becomeSubreaper() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// adoptsOrphans tells whether orphans come to this process: it is the first
// of its machine or container, or a subreaper. The kernel answers through a
// pointer, which package unix offers no safe way to pass.
func adoptsOrphans() bool {
	if os.Getpid() == 1 {
		return true
	}
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is != 0
}
