//go:build linux

package root

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dirMode is the mode of every directory made here, whatever the umask.
const dirMode = 0o755

// Mkdir makes the path's last component a directory.
func (p *Place) Mkdir() error { return p.mkdir(p.rel) }

func (p *Place) mkdir(rel string) error {
	dir, name, err := p.parent(rel)
	if err == ErrNoName {
		fd, err := p.open(rel, unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		unix.Close(fd)
		return syscall.EEXIST
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := retry(func() error { return unix.Mkdirat(dir, name, dirMode) }); err != nil {
		return err
	}
	err = fixMode(dir, name)
	if err != nil { // then it has not been made
		unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	return err
}

// fixMode gives a new directory the bits that a umask took from it. It acts on
// the directory that it opened, whatever the name leads to by now.
func fixMode(dir int, name string) error {
	fd, err := openPath(dir, name, unix.O_NOFOLLOW|unix.O_DIRECTORY)
	if err != nil {
		return nil // moved or removed already: somebody else's business
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o777 == dirMode {
		return err
	}
	return unix.Chmod(procPath(fd), st.Mode&0o2000|dirMode)
}

// MkdirAll makes the path and its missing parents. An existing directory is
// no error.
func (p *Place) MkdirAll() error { return p.mkdirAll(p.rel) }

// MkdirParents makes the missing parents of the path.
func (p *Place) MkdirParents() error {
	rel := strings.TrimRight(p.rel, "/")
	i := strings.LastIndexByte(rel, '/')
	if i <= 0 {
		return nil
	}
	return p.mkdirAll(rel[:i])
}

// mkdirAll goes through the prefixes of rel, longest first until one is
// there, then makes the rest. Links and ".." mean what they mean at the time.
func (p *Place) mkdirAll(rel string) error {
	var missing []string
	for prefix := rel; ; {
		err := p.isDir(prefix)
		if err == nil {
			break
		}
		if err != syscall.ENOENT {
			return err
		}
		missing = append(missing, prefix)
		trimmed := strings.TrimRight(prefix, "/")
		i := strings.LastIndexByte(trimmed, '/')
		if i <= 0 {
			break
		}
		prefix = trimmed[:i]
	}
	for i := len(missing) - 1; i >= 0; i-- {
		err := p.mkdir(missing[i])
		if err == syscall.EEXIST {
			if p.isDir(missing[i]) == nil {
				err = nil // made by somebody else meanwhile
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isDir answers nil for a directory and EEXIST for anything else there.
func (p *Place) isDir(rel string) error {
	fd, err := p.open(rel, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if rel != p.rel {
		return syscall.ENOTDIR
	}
	return syscall.EEXIST
}

func retry(call func() error) error {
	for {
		if err := call(); err != syscall.EINTR {
			return err
		}
	}
}
