//go:build linux

package local

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
)

// version is a file as it was at one moment.
type version struct {
	st unix.Stat_t
	fs int64 // the type of its file system
}

// look takes the version of what a descriptor stands for.
func look(fd int) (version, error) {
	var v version
	if err := unix.Fstat(fd, &v.st); err != nil {
		return v, err
	}
	if v.st.Mode&unix.S_IFMT == unix.S_IFREG {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(fd, &fs); err != nil {
			return v, err
		}
		v.fs = int64(fs.Type)
	}
	return v, nil
}

func (v version) regular() bool { return v.st.Mode&unix.S_IFMT == unix.S_IFREG }

// endless tells that the size is not to be believed: the file is made up
// while it is read, so it is read to its end.
func (v version) endless() bool {
	if !v.regular() {
		return false
	}
	switch v.fs {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC,
		unix.PSTOREFS_MAGIC, unix.EFIVARFS_MAGIC, unix.BPF_FS_MAGIC, configfsMagic:
		return true
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC,
		unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC:
		return false
	}
	return v.st.Size == 0
}

// configfsMagic is missing from package unix.
const configfsMagic = 0x62656570

// etag names the version of a regular file's content; no two writes made here
// share one (see stamp). Empty where nothing names it.
func (v version) etag() string {
	if !v.regular() || v.endless() {
		return ""
	}
	return v.id().ETag()
}

// id is what sets the version apart.
func (v version) id() sandbox.FileVersion {
	return sandbox.FileVersion{Dev: v.st.Dev, Ino: v.st.Ino, Nlink: uint64(v.st.Nlink), Mode: v.st.Mode, UID: v.st.Uid, GID: v.st.Gid,
		Size: v.st.Size, Mtime: v.st.Mtim.Nano(), Ctime: v.st.Ctim.Nano()}
}

// sameContent tells whether nothing speaks for a write between two looks.
func (v version) sameContent(was version) bool { return v.id().SameContent(was.id()) }

// stamp sets a time of writing that no other write through this sandbox has.
func (s *Sandbox) stamp(fd int) error {
	var now int64
	for {
		last := s.clock.Load()
		now = max(time.Now().UnixNano(), last+1)
		if s.clock.CompareAndSwap(last, now) {
			break
		}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(now)}
	return unix.UtimesNanoAt(unix.AT_FDCWD, procFD(fd), times, 0)
}
