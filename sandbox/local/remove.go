//go:build linux

package local

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/root"
	"golang.org/x/sys/unix"
)

const opRm = "rm"

// Rm implements sandbox.API.
func (s *Sandbox) Rm(ctx context.Context, path string, opts sandbox.RmOptions) error {
	if err := keyless(opRm, path, opts.RequestKey); err != nil {
		return err
	}
	place, err := s.locate(ctx, opRm, opts.Scope, path)
	if err == nil {
		defer place.Close()
		err = s.rm(ctx, place, path, opts)
	}
	if opts.Force && (errors.Is(err, syscall.ENOENT) || sandbox.KindOf(err) == sandbox.KindNotFound) {
		return nil
	}
	return err
}

func (s *Sandbox) rm(ctx context.Context, place *root.Place, path string, opts sandbox.RmOptions) error {
	dir, name, err := place.Parent()
	if errors.Is(err, root.ErrNoName) {
		return s.refuseByPlace(place, path)
	}
	if opts.Force && err == syscall.ENOTDIR {
		return nil // a file in the way: what was meant is not there
	}
	if err != nil {
		return fail(opRm, path, err)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fail(opRm, path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if strings.HasSuffix(path, "/") {
			return fail(opRm, path, syscall.ENOTDIR)
		}
		return s.done(path, unix.Unlinkat(dir, name, 0))
	}
	if s.holdsCwd(st) {
		return failKind(sandbox.KindPermission, opRm, path, "the sandbox's own directory is in it")
	}
	if !opts.Recursive {
		return fail(opRm, path, syscall.EISDIR)
	}
	return s.done(path, removeTree(ctx, dir, name))
}

func (s *Sandbox) done(path string, err error) error {
	if err != nil {
		return fail(opRm, path, err)
	}
	return nil
}

// refuseByPlace answers for "/", "." and "..": what is there is never removed
// by such a path.
func (s *Sandbox) refuseByPlace(place *root.Place, path string) error {
	fd, err := place.Open()
	if err != nil {
		return fail(opRm, path, err)
	}
	unix.Close(fd)
	return failKind(sandbox.KindPermission, opRm, path, "a directory is removed by its name alone")
}

// holdsCwd tells whether a directory is the sandbox's own or above it.
func (s *Sandbox) holdsCwd(dir unix.Stat_t) bool {
	fd, err := unix.Open(s.opts.DefaultCwd, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for err == nil {
		var st, up unix.Stat_t
		if err = unix.Fstat(fd, &st); err != nil {
			break
		}
		if st.Dev == dir.Dev && st.Ino == dir.Ino {
			unix.Close(fd)
			return true
		}
		var parent int
		parent, err = openAt(fd, "..", unix.O_PATH|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if fd = parent; err != nil {
			return false
		}
		if err = unix.Fstat(fd, &up); err == nil && up.Dev == st.Dev && up.Ino == st.Ino {
			break // the top
		}
	}
	if fd >= 0 {
		unix.Close(fd)
	}
	return false
}

// level is a directory on the way down to the one that is being emptied.
type level struct {
	name     string
	dev, ino uint64
}

// remover empties a tree. It holds one descriptor whatever the depth: on the
// way up it goes by "..", and makes sure that it comes where it came from.
type remover struct {
	ctx   context.Context
	fd    int // the directory that is being emptied
	mount uint64
	force bool    // open what its owner has closed to himself
	path  []level // from the top directory to the one of fd
}

// removeTree removes the directory name of dir with all that is in it, except
// what is mounted there: that stops it.
func removeTree(ctx context.Context, dir int, name string) error {
	return (&remover{ctx: ctx, fd: -1}).remove(dir, name)
}

// RemoveTree removes the directory at path, whose parent the caller trusts, with
// all that is in it, however deep. It follows no link. What is mounted below
// stops it (EBUSY) and is left as it is; so does the end of ctx. Directories
// that their owner has closed to himself are no obstacle. A path that is not
// there is no error.
func RemoveTree(ctx context.Context, path string) error {
	dir, err := openAt(unix.AT_FDCWD, filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return ignoreMissing((&remover{ctx: ctx, fd: -1, force: true}).remove(dir, filepath.Base(path)))
}

func (r *remover) remove(dir int, name string) error {
	// Most directories that are removed are empty or gone a moment later.
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != syscall.ENOTEMPTY && err != syscall.EEXIST {
		return err
	}
	defer func() {
		if r.fd >= 0 {
			unix.Close(r.fd)
		}
	}()
	var err error
	if r.mount, err = mountID(dir); err != nil {
		return err
	}
	if err := r.down(dir, name); err != nil {
		return err
	}
	if err := r.run(); err != nil {
		return err
	}
	return ignoreMissing(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
}

func ignoreMissing(err error) error {
	if err == syscall.ENOENT {
		return nil
	}
	return err
}

// mountID names the mount a descriptor is on; by the device where the kernel
// does not number mounts.
func mountID(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st)
	if err == nil && st.Mask&unix.STATX_MNT_ID != 0 {
		return st.Mnt_id, nil
	}
	var old unix.Stat_t
	err = unix.Fstat(fd, &old)
	return old.Dev, err
}

// down enters a directory of dir.
func (r *remover) down(dir int, name string) error {
	const how = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	fd, err := openAt(dir, name, how, 0)
	if err == syscall.EACCES && r.force && unix.Fchmodat(dir, name, 0o700, unix.AT_SYMLINK_NOFOLLOW) == nil {
		fd, err = openAt(dir, name, how, 0)
	}
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil {
		var mount uint64
		if mount, err = mountID(fd); err == nil && mount != r.mount {
			err = syscall.EBUSY
		}
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	if r.force && st.Mode&0o700 != 0o700 {
		unix.Fchmod(fd, 0o700) // what comes of it, the removal tells
	}
	if r.fd >= 0 {
		unix.Close(r.fd)
	}
	r.fd, r.path = fd, append(r.path, level{name, st.Dev, st.Ino})
	return nil
}

// up goes back to the parent and returns the name of what was left.
func (r *remover) up() (string, error) {
	left := r.path[len(r.path)-1]
	r.path = r.path[:len(r.path)-1]
	want := r.path[len(r.path)-1]
	fd, err := openAt(r.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	unix.Close(r.fd)
	r.fd = fd
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Dev != want.dev || st.Ino != want.ino {
		return "", syscall.EBUSY // moved away under our feet
	}
	return left.name, nil
}

// run empties the directory on top of the path and all below it.
func (r *remover) run() error {
	for {
		sub, err := r.empty()
		if err != nil {
			return err
		}
		if sub != "" {
			if err := ignoreMissing(r.down(r.fd, sub)); err != nil {
				return err
			}
			continue
		}
		if len(r.path) == 1 {
			return nil
		}
		name, err := r.up()
		if err != nil {
			return err
		}
		err = unix.Unlinkat(r.fd, name, unix.AT_REMOVEDIR)
		if err != nil && err != syscall.ENOENT && err != syscall.ENOTEMPTY && err != syscall.EEXIST {
			return err
		}
	}
}

// empty removes what it can from the directory and returns the first
// directory in it that has something in it, if any.
func (r *remover) empty() (string, error) {
	buf := make([]byte, 32<<10)
	for again := true; again; {
		again = false
		if _, err := unix.Seek(r.fd, 0, 0); err != nil {
			return "", err
		}
		for {
			if r.ctx.Err() != nil {
				return "", context.Cause(r.ctx)
			}
			n, err := unix.Getdents(r.fd, buf)
			if err == syscall.EINTR {
				continue
			}
			if err != nil && err != syscall.ENOENT {
				return "", err
			}
			if n <= 0 {
				break
			}
			_, _, names := unix.ParseDirent(buf[:n], -1, nil)
			for _, name := range names {
				full, err := removeEntry(r.fd, name)
				if err != nil || full {
					return name, err
				}
			}
			// Removing under a reader may hide names from it: look again
			// until a pass finds nothing.
			again = again || len(names) > 0
		}
	}
	return "", nil
}

// removeEntry removes a file or an empty directory; full tells that it is a
// directory with something in it.
func removeEntry(dir int, name string) (full bool, err error) {
	err = ignoreMissing(unix.Unlinkat(dir, name, 0))
	if err != syscall.EISDIR && err != syscall.EPERM {
		return false, err
	}
	rmdir := ignoreMissing(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
	switch rmdir {
	case syscall.ENOTEMPTY, syscall.EEXIST:
		return true, nil
	case syscall.ENOTDIR:
		return false, err // no directory: what unlink said
	}
	return false, rmdir
}
