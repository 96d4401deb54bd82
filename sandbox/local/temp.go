//go:build linux

package local

import (
	"crypto/rand"
	"os"
	"syscall"

	"github.com/controld/controld/sandbox/local/root"
	"golang.org/x/sys/unix"
)

// temp is a new file that nobody sees yet, in the directory it will stand in.
// It has no name where the file system can do that, else one that was
// recorded before.
type temp struct {
	s      *Sandbox
	dir    int      // not owned
	file   *os.File // for writing
	reader *os.File // after seal
	name   string   // empty while it has none
	forget func()   // takes the record of the name back
}

// newTemp makes a temp, for writing.
func (s *Sandbox) newTemp(dir int) (*temp, error) {
	t := &temp{s: s, dir: dir}
	fd, err := -1, error(syscall.EOPNOTSUPP)
	if !s.named.Load() {
		fd, err = openAt(dir, ".", unix.O_TMPFILE|unix.O_WRONLY, 0o600)
	}
	switch err {
	case syscall.EOPNOTSUPP, syscall.EISDIR, syscall.EINVAL:
		if err := t.record(); err != nil {
			return nil, err
		}
		if fd, err = openAt(dir, t.name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW, 0o600); err != nil {
			t.forget()
			if err == syscall.ENOENT { // procfs and its like make no files
				err = syscall.EPERM
			}
		}
	}
	if err != nil {
		return nil, err
	}
	t.file = os.NewFile(uintptr(fd), "temp")
	return t, nil
}

func openAt(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// record chooses a name and writes it down. Listings leave it out.
func (t *temp) record() error {
	name := tempPrefix + rand.Text()
	forget, err := t.s.journal.temp(t.dir, name)
	if err != nil {
		return err
	}
	t.name = name
	t.s.temps.Store(name, nil)
	t.forget = func() {
		t.s.temps.Delete(name)
		forget()
	}
	return nil
}

// fd is the descriptor, while the temp is not published or dropped.
func (t *temp) fd() int { return int(t.file.Fd()) }

// publish makes the temp stand under name, whatever stood there. fresh says
// that nothing stood there a moment ago. The file is closed for writing, by
// everybody, before it gets the name: a program is not started while it is
// open for writing anywhere.
func (t *temp) publish(name string, fresh bool) error {
	err := t.file.Close()
	awaitClosed(int(t.reader.Fd()))
	if err == nil {
		err = t.place(int(t.reader.Fd()), name, fresh)
	}
	t.drop()
	return err
}

// seal opens the temp for reading as well. That has to be done before it gets
// a mode that may forbid it.
func (t *temp) seal() error {
	fd, err := root.Reopen(t.fd(), unix.O_RDONLY)
	if err != nil {
		return err
	}
	t.reader = os.NewFile(uintptr(fd), "temp")
	return nil
}

// place links and renames the closed file.
func (t *temp) place(at int, name string, fresh bool) error {
	if t.name == "" {
		if fresh {
			if err := t.link(at, name); err != syscall.EEXIST {
				return err
			}
		}
		if err := t.record(); err != nil {
			return err
		}
		if err := t.link(at, t.name); err != nil {
			return err
		}
	} else if err := t.verify(at); err != nil {
		return err
	}
	err := unix.Renameat(t.dir, t.name, t.dir, name)
	if err == nil {
		t.forget()
		t.name = ""
	}
	return err
}

func (t *temp) link(at int, name string) error {
	return unix.Linkat(unix.AT_FDCWD, procFD(at), t.dir, name, unix.AT_SYMLINK_FOLLOW)
}

// verify makes sure that the temp's name still leads to it: a command may
// have removed or replaced what it can see.
func (t *temp) verify(at int) error {
	var mine, there unix.Stat_t
	if err := unix.Fstat(at, &mine); err != nil {
		return err
	}
	if err := unix.Fstatat(t.dir, t.name, &there, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if mine.Dev != there.Dev || mine.Ino != there.Ino {
		t.forget()
		t.name = "" // not ours to remove
		return syscall.ESTALE
	}
	return nil
}

// drop closes the temp and removes what name it has left.
func (t *temp) drop() {
	t.file.Close()
	if t.reader != nil {
		t.reader.Close()
	}
	t.dropName()
}

func (t *temp) dropName() {
	if t.name == "" {
		return
	}
	// What cannot be removed now is the next start's to remove.
	if ignoreMissing(unix.Unlinkat(t.dir, t.name, 0)) == nil {
		t.forget()
	}
	t.s.temps.Delete(t.name)
	t.name = ""
}
