package launch

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ShowAs makes a directory of the host's seen at another, read-only, with the
// users and groups 0 to count-1 of its files as those from base on. On a file
// system that cannot do so they are seen as they are, which is nobody's in a
// sandbox. It runs within [Private]. See mount_setattr(2), "ID-mapped mounts".
func ShowAs(source, at string, base, count int) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open %s as a mount: %w", source, err)
	}
	defer unix.Close(tree)
	users, err := userNamespace(base, count)
	if err != nil {
		return fmt.Errorf("a user namespace: %w", err)
	}
	defer users.Close()
	mapped := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &mapped)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("map the users of %s: %w", source, err)
	}
	closed := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &closed); err != nil {
		return fmt.Errorf("restrict %s: %w", source, err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("bind %s: %w", source, err)
	}
	return nil
}

// userNamespace returns one whose users 0 to count-1 are those from base on. A
// process is needed to make one; it is stopped before it runs anything. The
// goroutine must be on one thread.
func userNamespace(base, count int) (*os.File, error) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: count}}
	p, err := os.StartProcess("/proc/self/exe", []string{"controld-users"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}})
	if err != nil {
		return nil, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	ended := p.Kill()
	if ended == nil {
		_, ended = p.Wait()
	}
	if err = errors.Join(err, ended); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
