//go:build linux

package root

import (
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Errors that no errno stands for.
var (
	// ErrInvalid is a path that cannot name anything: empty, or with a NUL.
	ErrInvalid = errors.New("empty path or NUL in it")
	// ErrOutside is a path that leads out of its scope.
	ErrOutside = errors.New("outside of the scope")
	// ErrMagicLink is a path through a link of /proc that is no text.
	ErrMagicLink = errors.New("through a magic link")
	// ErrNoName is a path whose last component names no entry of its parent:
	// "/", ".", "..".
	ErrNoName = errors.New("names a directory by its place")
)

const (
	pathMax = 4096
	nameMax = 255
	// maxLinks is the kernel's own limit of links in one path.
	maxLinks = 40
	// retries bounds how often a walk disturbed by renames starts again.
	retries = 32
)

// Root opens paths that start at one directory.
type Root struct {
	cwd    string
	walker atomic.Bool // the kernel has no openat2, or it is not wanted
}

// New returns a Root whose relative paths start at cwd, an absolute path.
func New(cwd string) *Root { return &Root{cwd: cwd} }

// UseWalker makes the Root walk by itself even where the kernel could.
func (r *Root) UseWalker() { r.walker.Store(true) }

// Place is a path and the directory it starts at. Close it.
type Place struct {
	root *Root
	dir  int    // where rel starts, or AT_FDCWD for an absolute rel
	rel  string // as the caller wrote it, without the scope
	// beneath forbids to leave dir, plain forbids magic links alone.
	beneath, plain bool
}

// Locate finds where path starts: at the scope, the Root's directory or "/".
func (r *Root) Locate(scope, path string) (*Place, error) {
	if err := check(path); err != nil {
		return nil, err
	}
	if scope != "" {
		return r.inScope(scope, path)
	}
	if path[0] == '/' {
		return &Place{root: r, dir: unix.AT_FDCWD, rel: path}, nil
	}
	dir, err := openPath(unix.AT_FDCWD, r.cwd, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Place{root: r, dir: dir, rel: path}, nil
}

// LocatePlain is Locate without a scope, for a path that may not lead through
// a magic link.
func (r *Root) LocatePlain(path string) (*Place, error) {
	p, err := r.Locate("", path)
	if err != nil {
		return nil, err
	}
	p.plain = true
	return p, nil
}

func (r *Root) inScope(scope, path string) (*Place, error) {
	if err := check(scope); err != nil {
		return nil, err
	}
	if scope[0] != '/' {
		scope = r.cwd + "/" + scope
	}
	if path[0] == '/' {
		var ok bool
		if path, ok = strip(scope, path); !ok {
			return nil, ErrOutside
		}
	}
	dir, err := openPath(unix.AT_FDCWD, scope, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Place{root: r, dir: dir, rel: path, beneath: true}, nil
}

// strip takes the components of scope off the front of path, as text.
// Repeated slashes and "." are no components.
func strip(scope, path string) (string, bool) {
	for {
		var want, got string
		if want, scope = component(scope); want == "" {
			path = strings.TrimLeft(path, "/")
			if path == "" {
				path = "."
			}
			return path, true
		}
		if got, path = component(path); got != want {
			return "", false
		}
	}
}

// component cuts the first component that is not "." off a path.
func component(path string) (first, rest string) {
	for {
		path = strings.TrimLeft(path, "/")
		i := strings.IndexByte(path, '/')
		if i < 0 {
			i = len(path)
		}
		first, rest = path[:i], path[i:]
		if first != "." {
			return first, rest
		}
		path = rest
	}
}

// check refuses what the kernel would refuse or misread, before any call.
func check(path string) error {
	if path == "" || strings.IndexByte(path, 0) >= 0 {
		return ErrInvalid
	}
	if len(path) >= pathMax {
		return syscall.ENAMETOOLONG
	}
	for rest := path; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if len(name) > nameMax {
			return syscall.ENAMETOOLONG
		}
	}
	return nil
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
