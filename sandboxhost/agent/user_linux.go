package agent

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox/local"
)

// kept are the capabilities that are left beside another user's commands, to
// start and to end them.
const kept = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// become has all threads, and those to come, reach files as the user of the
// commands does, with its groups and without a capability that would override
// permissions. All else of this process is another user's: own, or as it was
// where that is nil. There are no signals to threads behind deafen, so it comes
// before.
func become(u local.User, own *local.User, processes uint64) error {
	fail := func(what string, err error) error { return fmt.Errorf("--user %s: %s: %w", u, what, err) }
	if !first() || os.Geteuid() != 0 {
		return fail("the agent", errors.New("is not process 1 and root of its namespace"))
	}
	if own == nil {
		own = &local.User{UID: os.Geteuid(), GID: os.Getegid()}
	}
	if u.UID == own.UID || u.UID == 0 {
		return fail("the user", errors.New("is the agent's own"))
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"setgroups", func() error { return syscall.Setgroups(u.Groups) }},
		{"bounding set", unbound},
		{"setresuid", func() error { return resign(own.UID, own.GID) }},
		{"capabilities", renounce},
		{"setfsuid", func() error { return reach(u) }},
		{"setrlimit", func() error { return bound(processes) }},
	} {
		if err := step.do(); err != nil {
			return fail(step.name, err)
		}
	}
	return nil
}

// resign has this process be another user than root, with its capabilities.
func resign(uid, gid int) error {
	if err := each(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0); err != nil {
		return err
	}
	g, u := uintptr(gid), uintptr(uid)
	if err := each(unix.SYS_SETRESGID, g, g, g); err != nil {
		return err
	}
	if err := each(unix.SYS_SETRESUID, u, u, u); err != nil {
		return err
	}
	return each(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 0, 0)
}

// reach has file calls be the user's. A kernel of gVisor's knows no such thing;
// there it is the effective user, which on Linux would let commands change the
// priority of this process, and of which gVisor makes no more than that.
func reach(u local.User) error {
	err := files(unix.SYS_SETFSGID, u.GID)
	if err == nil {
		return files(unix.SYS_SETFSUID, u.UID)
	}
	if err != unix.ENOSYS {
		return err
	}
	const same = ^uintptr(0)
	if err := each(unix.SYS_SETRESGID, same, uintptr(u.GID), same); err != nil {
		return err
	}
	if err := each(unix.SYS_SETRESUID, same, uintptr(u.UID), same); err != nil {
		return err
	}
	return renounce() // what is in effect went with root
}

// files sets a user or group for the file calls of all threads. The call tells
// the one before and no error, so it is asked again, with one that is none.
func files(call uintptr, id int) error {
	if err := each(call, uintptr(id), 0, 0); err != nil {
		return err
	}
	is, _, errno := syscall.AllThreadsSyscall(call, ^uintptr(0), 0, 0)
	if errno == 0 && int(uint32(is)) != id {
		return unix.EPERM
	}
	return asError(errno)
}

// bound has no user have more processes than that, this process's own for
// itself. Commands inherit it and cannot raise it.
func bound(processes uint64) error {
	if processes == 0 {
		return nil
	}
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: processes, Max: processes})
}

// unbound empties the bounding set, from which root's programs get theirs.
func unbound() error {
	for c := uintptr(0); ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return nil // it was the last
		}
		if has == 0 {
			continue
		}
		if err := each(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return err
		}
	}
}

// renounce gives all other capabilities up. Ambient ones go with those that are
// passed on.
func renounce() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: kept, Permitted: kept}}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	return asError(errno)
}

// each makes a system call on every thread. A program with cgo has threads that
// nobody knows of, so there it cannot be done.
func each(call, a, b, c uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(call, a, b, c)
	return asError(errno)
}

func asError(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case unix.ENOTSUP:
		return errors.New("this program was built with cgo; build it with CGO_ENABLED=0")
	}
	return errno
}
