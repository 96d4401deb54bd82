//go:build linux

package proctree

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownLeaf is where this process moves itself, below its own cgroup: one that
// has processes of its own cannot hand controllers down (the root apart), see
// cgroups(7), "no internal processes".
const ownLeaf = CgroupPrefix + "self"

// controllers are those that hold the limits.
func (l Limits) controllers() (enable string) {
	if l.Memory > 0 {
		enable += " +memory"
	}
	if l.Processes > 0 {
		enable += " +pids"
	}
	return enable
}

// delegate hands the controllers down to the cgroups below dir, which is below
// this process's own.
func (l Limits) delegate(own, dir string) error {
	enable := l.controllers()
	if enable == "" {
		return nil
	}
	err := setCgroup(own, "cgroup.subtree_control", enable)
	if errors.Is(err, unix.EBUSY) {
		if err = moveSelf(own); err == nil {
			err = setCgroup(own, "cgroup.subtree_control", enable)
		}
	}
	if err != nil {
		return err
	}
	return setCgroup(dir, "cgroup.subtree_control", enable)
}

// moveSelf moves this process out of the way of the controllers. Where others
// are in the same cgroup that does not help, and they are left alone.
func moveSelf(own string) error {
	leaf := filepath.Join(own, ownLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return setCgroup(leaf, "cgroup.procs", strconv.Itoa(os.Getpid()))
}

// apply sets the limits of a new cgroup.
func (l Limits) apply(dir string) error {
	if l.Memory > 0 {
		most := strconv.FormatInt(l.Memory, 10)
		// The whole tree goes, not a process of the kernel's choice.
		err := errors.Join(setCgroup(dir, "memory.max", most), setCgroup(dir, "memory.oom.group", "1"))
		if swap := setCgroup(dir, "memory.swap.max", "0"); swap != nil && !errors.Is(swap, os.ErrNotExist) {
			err = errors.Join(err, swap) // a kernel without swap has no such file
		}
		if err != nil {
			return err
		}
	}
	if l.Processes > 0 {
		return setCgroup(dir, "pids.max", strconv.FormatInt(l.Processes, 10))
	}
	return nil
}

func setCgroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
