//go:build linux

package local

import (
	"context"
	"errors"
	"strconv"
	"syscall"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/root"
	"golang.org/x/sys/unix"
)

// procFD is a path to what a descriptor stands for, in this process and in a
// child that has not yet executed its program.
func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// locate finds where a path starts, for the method op.
func (s *Sandbox) locate(ctx context.Context, op, scope, path string) (*root.Place, error) {
	if err := s.ready(ctx, op, path); err != nil {
		return nil, err
	}
	place, err := s.paths.Locate(scope, path)
	if err != nil {
		return nil, fail(op, path, err)
	}
	return place, nil
}

// Stat implements sandbox.API.
func (s *Sandbox) Stat(ctx context.Context, path string, opts sandbox.StatOptions) (sandbox.FileStat, error) {
	place, err := s.locate(ctx, "stat", opts.Scope, path)
	if err != nil {
		return sandbox.FileStat{}, err
	}
	defer place.Close()
	stat, err := statPlace(place, opts.NoFollow)
	if err != nil {
		return stat, fail("stat", path, err)
	}
	return stat, nil
}

func statPlace(place *root.Place, noFollow bool) (sandbox.FileStat, error) {
	stat, err := statOpened(place.OpenLink())
	if err != nil || stat.Type != sandbox.TypeSymlink {
		return stat, err
	}
	if !noFollow {
		if stat, err = statOpened(place.Open()); err != nil {
			return sandbox.FileStat{}, err
		}
	}
	stat.IsSymlink = sandbox.Some(true)
	return stat, nil
}

// statOpened describes what was opened, and closes it.
func statOpened(fd int, err error) (sandbox.FileStat, error) {
	if err != nil {
		return sandbox.FileStat{}, err
	}
	defer unix.Close(fd)
	v, err := look(fd)
	if err != nil {
		return sandbox.FileStat{}, err
	}
	stat := sandbox.FileStat{
		Type:      fileType(v.st.Mode),
		IsSymlink: sandbox.Some(false),
		Mode:      sandbox.Some(v.st.Mode & 0o777),
		ETag:      v.etag(),
	}
	if !v.endless() {
		stat.Size = sandbox.Some(v.st.Size)
	}
	if t := time.Unix(v.st.Mtim.Unix()).UTC(); t.Year() >= 1 && t.Year() <= 9999 {
		stat.ModTime = sandbox.Some(t)
	}
	return stat, nil
}

func fileType(mode uint32) sandbox.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return sandbox.TypeFile
	case unix.S_IFDIR:
		return sandbox.TypeDirectory
	case unix.S_IFLNK:
		return sandbox.TypeSymlink
	}
	return sandbox.TypeOther
}

// Exists implements sandbox.API.
func (s *Sandbox) Exists(ctx context.Context, path string, opts sandbox.ExistsOptions) (bool, error) {
	if err := s.ready(ctx, "exists", path); err != nil {
		return false, err
	}
	place, err := s.paths.Locate(opts.Scope, path)
	if err == nil {
		defer place.Close()
		var fd int
		if fd, err = place.Open(); err == nil {
			unix.Close(fd)
			return true, nil
		}
	}
	for _, no := range []error{root.ErrInvalid, syscall.ENOENT, syscall.ENOTDIR, syscall.ENAMETOOLONG} {
		if errors.Is(err, no) {
			return false, nil
		}
	}
	return false, fail("exists", path, err)
}

// Mkdir implements sandbox.API.
func (s *Sandbox) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	if err := keyless("mkdir", path, opts.RequestKey); err != nil {
		return err
	}
	place, err := s.locate(ctx, "mkdir", opts.Scope, path)
	if err != nil {
		return err
	}
	defer place.Close()
	if opts.Recursive {
		err = place.MkdirAll()
	} else {
		err = place.Mkdir()
	}
	if err != nil {
		return fail("mkdir", path, err)
	}
	return nil
}
