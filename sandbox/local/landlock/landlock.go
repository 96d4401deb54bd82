//go:build linux

// Package landlock has a process and all that it starts give rights to files up
// that their mounts and permissions would leave to them, see landlock(7). Nothing
// gives them back.
//
// What does not belong here: which paths those are.
package landlock

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights by what they are for, and from which version of the kernel's
// interface on there are the later ones.
const (
	reads = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// files are the rights to a file that is there, trees those to what it is in.
	files = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	trees = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER

	truncateSince = 3
	ioctlSince    = 5
	scopesSince   = 6
	// usable is the first version with which a file can be moved from one
	// directory to another at all.
	usable = 2
)

// ErrNone is returned where the kernel has no Landlock that can be used.
var ErrNone = errors.New("landlock: the kernel has none, or one that is too old")

// Version is that of the kernel's interface, 0 where there is none.
func Version() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// Restrict leaves this thread, and what it starts from then on, all files to read
// and to execute, and to write and to change only the files and what is beneath
// the directories that are named. Where the kernel can it reaches no abstract
// socket and signals no process that is not restricted with it. This process must
// have given up new privileges (no_new_privs).
func Restrict(writable []string) error {
	version := Version()
	if version < usable {
		return ErrNone
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled(version)}
	if version >= scopesSince {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(fd))
	if err := allow(int(fd), "/", reads); err != nil {
		return err
	}
	for _, path := range writable {
		if err := allow(int(fd), path, handled(version)); err != nil {
			return err
		}
	}
	_, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	return os.NewSyscallError("landlock_restrict_self", asError(errno))
}

// handled are the rights that a version knows.
func handled(version int) uint64 {
	rights := uint64(reads | files | trees)
	if version < truncateSince {
		rights &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version < ioctlSince {
		rights &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return rights
}

// allow allows what of the rights a path can have.
func allow(ruleset int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "landlock", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "landlock", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &^= trees | unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock_add_rule %s: %w", path, errno)
	}
	return nil
}

// asError keeps "no error" from becoming one.
func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}
