//go:build linux

package root

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Place is a path and the directory it starts at. Close it.
type Place struct {
	root *Root
	dir  int    // where rel starts, or AT_FDCWD for an absolute rel
	rel  string // as the caller wrote it, without the scope
	// beneath forbids to leave dir, plain forbids magic links alone.
	beneath, plain bool
}

// Close releases the place.
func (p *Place) Close() {
	if p.dir != unix.AT_FDCWD {
		unix.Close(p.dir)
	}
}

// NamesDirectory tells whether the path can only be a directory's: it ends in
// a slash, "." or "..".
func (p *Place) NamesDirectory() bool { return namesDirectory(p.rel) }

func namesDirectory(rel string) bool {
	last := rel[strings.LastIndexByte(rel, '/')+1:]
	return last == "" || last == "." || last == ".."
}

// Open opens what the path leads to as an O_PATH descriptor.
func (p *Place) Open() (int, error) { return p.open(p.rel, 0) }

// OpenDir is Open for a directory.
func (p *Place) OpenDir() (int, error) { return p.open(p.rel, unix.O_DIRECTORY) }

// OpenLink opens the path itself, also where it is a link.
func (p *Place) OpenLink() (int, error) { return p.open(p.rel, unix.O_NOFOLLOW) }

// open opens rel with O_PATH and the given O_DIRECTORY or O_NOFOLLOW.
func (p *Place) open(rel string, flags int) (int, error) {
	if !p.beneath && !p.plain {
		return openPath(p.dir, rel, flags)
	}
	if p.root.walker.Load() {
		return p.walk(rel, flags)
	}
	fd, err := p.openat2(rel, flags)
	switch err {
	case nil:
		return fd, nil
	case syscall.EXDEV:
		return -1, ErrOutside
	case syscall.ENOSYS:
		p.root.walker.Store(true)
		return p.walk(rel, flags)
	case syscall.EPERM, syscall.EAGAIN, syscall.E2BIG, syscall.ELOOP:
		// Filtered, disturbed too often, or a loop that may be a magic
		// link: the walker finds out which.
		return p.walk(rel, flags)
	}
	return -1, err
}

func (p *Place) openat2(rel string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(unix.O_PATH | unix.O_CLOEXEC | flags), Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if p.beneath {
		how.Resolve |= unix.RESOLVE_BENEATH
	}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(p.dir, rel, &how)
		if err == syscall.EINTR || err == syscall.EAGAIN && try < retries {
			continue
		}
		return fd, err
	}
}

// Parent opens the directory that holds the path's last component.
func (p *Place) Parent() (dir int, name string, err error) { return p.parent(p.rel) }

func (p *Place) parent(rel string) (int, string, error) {
	rel = strings.TrimRight(rel, "/")
	i := strings.LastIndexByte(rel, '/') + 1
	name := rel[i:]
	if name == "" || name == "." || name == ".." {
		return -1, "", ErrNoName
	}
	if i == 0 {
		dir, err := p.open(".", unix.O_DIRECTORY)
		return dir, name, err
	}
	dir, err := p.open(rel[:i], unix.O_DIRECTORY)
	return dir, name, err
}

// Target opens the directory and name that a write to the path goes to: links
// at the end are followed, the last of them may dangle.
func (p *Place) Target() (dir int, name string, err error) {
	rel := p.rel
	for links := 0; ; links++ {
		if namesDirectory(rel) {
			return -1, "", p.noFile(rel)
		}
		dir, name, err := p.parent(rel)
		if err != nil {
			return -1, "", err
		}
		text, err := p.readlink(dir, name)
		if err == syscall.EINVAL || err == syscall.ENOENT {
			return dir, name, nil
		}
		unix.Close(dir)
		if err != nil {
			return -1, "", err
		}
		if links == maxLinks {
			return -1, "", syscall.ELOOP
		}
		switch {
		case text[0] != '/':
			rel = rel[:len(rel)-len(name)] + text
		case p.beneath:
			return -1, "", ErrOutside
		default:
			rel = text
		}
		if len(rel) >= pathMax {
			return -1, "", syscall.ENAMETOOLONG
		}
	}
}

// noFile says why a path that names a directory is no file to write to.
func (p *Place) noFile(rel string) error {
	fd, err := p.open(rel, 0)
	if err == nil {
		unix.Close(fd)
	}
	if err == nil || err == syscall.ENOENT {
		return syscall.EISDIR
	}
	return err
}

// readlink reads a link of the directory; EINVAL where name is no link.
func (p *Place) readlink(dir int, name string) (string, error) {
	text, err := readlinkat(dir, name)
	if err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(dir, &fs); err == nil && fs.Type == unix.PROC_SUPER_MAGIC && magic(text) {
		return "", ErrMagicLink
	}
	return text, nil
}

func readlinkat(dir int, name string) (string, error) {
	buf := make([]byte, pathMax)
	for {
		n, err := unix.Readlinkat(dir, name, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return "", err
		}
		if n == 0 {
			return "", syscall.ENOENT
		}
		return string(buf[:n]), nil
	}
}

// magic tells whether a link of procfs leads elsewhere than its text says.
// Few of its links are plain (self, thread-self, mounts, net); those are
// short relative paths, and what cannot be told is taken for magic.
func magic(text string) bool {
	return text[0] == '/' || strings.ContainsAny(text, ":( ")
}

// Reopen opens what an O_PATH descriptor stands for with other flags.
func Reopen(fd, flags int) (int, error) {
	for {
		n, err := unix.Open(procPath(fd), flags|unix.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openPath is openat(2) with O_PATH.
func openPath(dir int, path string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}
