package faultfs

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// mounted is the file system in its place.
type mounted struct {
	dir    string
	server *fuse.Server
	space  *space
}

// Mount puts a file system with faults over dir and passes on to what is
// there. Only processes of [FS.Start], with their children, see it: this one,
// and all others, go on seeing what is below. Where the machine has no FUSE,
// or not for this user, it is [ErrMissing]. The caller closes it.
func Mount(dir string) (*FS, error) {
	s, err := newSpace()
	if err != nil {
		return nil, fmt.Errorf("%w: a mount namespace: %w (run as root)", ErrMissing, err)
	}
	f := &FS{mounted: mounted{dir: dir, space: s}}
	if err := f.mount(); err != nil {
		s.leave()
		return nil, err
	}
	return f, nil
}

// mount makes the mount by itself and gives the descriptor to the library, so
// that no child inherits it: the file system ends with this process.
func (f *FS) mount() error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%w: /dev/fuse: %w (run as root, with the module fuse)", ErrMissing, err)
	}
	root, err := fs.NewLoopbackRoot(f.dir)
	if err != nil {
		unix.Close(fd)
		return err
	}
	f.space.do(func() {
		options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, unix.Geteuid(), unix.Getegid())
		err = unix.Mount("faultfs", f.dir, "fuse.faultfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	})
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("%w: a mount of FUSE: %w (run as root)", ErrMissing, err)
	}
	served := fs.NewNodeFS(&node{root.(*fs.LoopbackNode), f}, &fs.Options{})
	// Nothing is read ahead or written behind: each call is one of the daemon's.
	f.server, err = fuse.NewServer(served, fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{DisableReadDirPlus: true, MaxReadAhead: 4096, MaxBackground: 256})
	if err != nil {
		return err
	}
	go f.server.Serve()
	return nil
}

// Start starts a command that sees the file system. It is killed when this
// process dies.
func (f *FS) Start(cmd *exec.Cmd) (err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // of the thread: it lives until Close
	f.space.do(func() { err = cmd.Start() })
	return err
}

// Close releases what stands still and takes the file system away. What was
// started must have ended.
func (f *FS) Close() {
	f.Release()
	f.space.do(func() { unix.Unmount(f.dir, unix.MNT_DETACH) })
	f.space.leave()
	f.server.Wait()
}

// space is a thread with a mount namespace of its own. Children that it starts
// are in that namespace; it goes when the last of them has ended.
type space struct {
	work  chan func()
	ended chan struct{}
}

func newSpace() (*space, error) {
	s := &space{work: make(chan func()), ended: make(chan struct{})}
	began := make(chan error)
	onThread(func() {
		defer close(s.ended)
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		began <- err
		for f := range s.work {
			f()
		}
	})
	err := <-began
	if err != nil {
		s.leave()
	}
	return s, err
}

// onThread runs a function on a thread that ends with it, and that is not the
// first one: what is said of that is taken for the whole process.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread() // for good
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		elsewhere := make(chan struct{})
		onThread(func() {
			close(elsewhere)
			f()
		})
		<-elsewhere
		runtime.UnlockOSThread()
	}()
}

// do has the thread do something and waits.
func (s *space) do(f func()) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (s *space) leave() {
	close(s.work)
	<-s.ended
}
