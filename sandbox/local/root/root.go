//go:build linux

package root

import (
	"errors"
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
