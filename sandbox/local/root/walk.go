//go:build linux

package root

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// errDisturbed means that a directory which had been walked through is no
// longer there: the walk starts again.
const errDisturbed = syscall.EAGAIN

// walk opens rel one component at a time. It holds two descriptors at most,
// whatever the depth, and never asks the kernel for "..": it goes down again
// from the top, so that a directory moved away meanwhile leads nowhere else.
func (p *Place) walk(rel string, flags int) (int, error) {
	top := p.dir
	if !p.beneath {
		// The machine's own tree: its top is "/", where ".." stays.
		var err error
		if top, err = openPath(unix.AT_FDCWD, "/", unix.O_DIRECTORY); err != nil {
			return -1, err
		}
		defer unix.Close(top)
		if rel[0] != '/' {
			rel = p.root.cwd + "/" + rel
		}
	}
	for try := 0; ; try++ {
		w := walker{top: top, dir: top, beneath: p.beneath, flags: flags}
		fd, err := w.run(rel)
		w.release()
		if err != errDisturbed || try == retries {
			return fd, err
		}
	}
}

type walker struct {
	top, dir int      // dir is top or owned
	names    []string // the directories between top and dir
	beneath  bool
	flags    int
	links    int
}

func (w *walker) release() {
	if w.dir != w.top {
		unix.Close(w.dir)
	}
	w.dir = w.top
}

// run walks rel and returns the descriptor at its end.
func (w *walker) run(rel string) (int, error) {
	todo := rel
	for {
		name, rest, more := strings.Cut(todo, "/")
		last := !more
		switch {
		case name == "" || name == ".":
			if last {
				return openPath(w.dir, ".", unix.O_DIRECTORY)
			}
		case name == "..":
			if err := w.up(); err != nil {
				return -1, err
			}
			if last {
				return openPath(w.dir, ".", unix.O_DIRECTORY)
			}
		default:
			fd, text, err := w.step(name, last)
			if err != nil || fd >= 0 {
				return fd, err
			}
			if text != "" {
				if rest, err = w.link(text, rest, last); err != nil {
					return -1, err
				}
			}
		}
		todo = rest
	}
}

// step opens one component. It returns the descriptor at the end of the path,
// or the text of a link to follow, or neither when it went down a directory.
func (w *walker) step(name string, last bool) (int, string, error) {
	fd, err := openPath(w.dir, name, unix.O_NOFOLLOW)
	if err != nil {
		return -1, "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, "", err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		if last && w.flags&unix.O_NOFOLLOW != 0 {
			return fd, "", nil
		}
		defer unix.Close(fd)
		text, err := w.text(fd)
		return -1, text, err
	case unix.S_IFDIR:
		if last {
			return fd, "", nil
		}
		w.release()
		w.dir, w.names = fd, append(w.names, name)
		return -1, "", nil
	}
	if last && w.flags&unix.O_DIRECTORY == 0 {
		return fd, "", nil
	}
	unix.Close(fd)
	return -1, "", syscall.ENOTDIR
}

// text reads a link that is to be followed.
func (w *walker) text(fd int) (string, error) {
	if w.links++; w.links > maxLinks {
		return "", syscall.ELOOP
	}
	text, err := readlinkat(fd, "")
	if err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", err
	}
	if fs.Type == unix.PROC_SUPER_MAGIC && magic(text) {
		return "", ErrMagicLink
	}
	return text, nil
}

// link returns what is left to walk once a link's text is put in its place.
func (w *walker) link(text, rest string, last bool) (string, error) {
	if text[0] == '/' {
		if w.beneath {
			return "", ErrOutside
		}
		w.release()
		w.names = nil
	}
	if last {
		return text, nil
	}
	return text + "/" + rest, nil
}

// up goes to the parent directory, down again from the top.
func (w *walker) up() error {
	if len(w.names) == 0 {
		if w.beneath {
			return ErrOutside
		}
		return nil
	}
	// The kernel asks for the right to search a directory on the way up too.
	if err := unix.Faccessat2(w.dir, ".", unix.X_OK, unix.AT_EACCESS); err == syscall.EACCES {
		return err
	}
	w.names = w.names[:len(w.names)-1]
	w.release()
	for _, name := range w.names {
		fd, err := openPath(w.dir, name, unix.O_NOFOLLOW|unix.O_DIRECTORY)
		if err == syscall.ENOENT || err == syscall.ENOTDIR {
			return errDisturbed
		}
		if err != nil {
			return err
		}
		w.release()
		w.dir = fd
	}
	return nil
}
