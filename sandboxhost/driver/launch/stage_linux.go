package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox/local/thread"
)

// Private runs do on a thread with a mount namespace of its own, which what it
// starts inherits: mounts that it makes or removes are nobody else's. do must
// start processes on the goroutine that it is called on. It needs
// CAP_SYS_ADMIN.
func Private(do func() error) error {
	var err error
	// The mount namespace is the thread's, and what the process sees of itself in
	// /proc would be the first thread's.
	thread.Spend(func() {
		err = unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			// Unmounts of the host's still arrive, or it could not unplug.
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
		}
		if err != nil {
			err = fmt.Errorf("a mount namespace: %w", err)
			return
		}
		err = do()
	})
	return err
}

// stages are directories over which a stage may be mounted: nothing that a
// sandbox is made of is expected there.
var stages = []string{"/mnt", "/srv", "/media", "/tmp"}

// Stage mounts an empty directory, of memory, that every user can go through,
// for [Private] alone, and binds sources into it by their names there. So who
// may not go through the host's directories reaches what he needs. It returns
// the directory.
func Stage(sources map[string]string) (string, error) {
	held := make(map[string]*os.File, len(sources))
	for name, source := range sources {
		// By descriptor, since the stage may hide the path.
		f, err := os.OpenFile(source, unix.O_PATH, 0)
		if err != nil {
			return "", err
		}
		defer f.Close()
		held[name] = f
	}
	at, err := mountStage()
	if err != nil {
		return "", err
	}
	for name, f := range held {
		if err := bind(f, filepath.Join(at, name)); err != nil {
			return "", err
		}
	}
	return at, nil
}

func mountStage() (string, error) {
	err := errors.New("none of the directories for it exists")
	for _, dir := range stages {
		if err = unix.Mount("controld", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=16m"); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("a stage in %v: %w", stages, err)
}

// bind makes a file or directory seen at a path.
func bind(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.Mkdir(path, 0o755)
	} else {
		err = os.WriteFile(path, nil, 0o644)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", f.Name(), err)
	}
	return nil
}

// Show makes a path of the host's, with all that is mounted below it, seen at
// another, which exists: without devices, without programs that change their
// user, and read-only unless writable is said.
func Show(source, at string, writable bool) error {
	if err := unix.Mount(source, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if !writable {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("restrict %s: %w", at, err)
	}
	return nil
}

// Own gives a directory and all in it to a user, where it is not already his.
// No link is followed. Nothing of the sandbox's may run.
func Own(dir string, uid, gid int) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if isOf(info, uid) {
		return nil
	}
	// The directory itself comes last: until then another try begins anew.
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
	if err != nil {
		return err
	}
	return os.Lchown(dir, uid, gid)
}

func isOf(info os.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}
