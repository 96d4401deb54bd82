package dataport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
)

// receiveMost is for how many descriptors there is room: enough to see that
// there are too many. The kernel closes what has none.
const receiveMost = 4

// receiveRights reads once and appends the descriptors that came, also with an
// error. lost says that more came than there is room for, or something else.
func receiveRights(conn *net.UnixConn, b []byte, files *[]*os.File) (n int, lost bool, err error) {
	oob := make([]byte, unix.CmsgSpace(receiveMost*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(b, oob) // with MSG_CMSG_CLOEXEC
	messages, bad := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range messages {
		fds, notRights := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			*files = append(*files, os.NewFile(uintptr(fd), "passed"))
		}
		lost = lost || notRights != nil
	}
	return n, lost || bad != nil || flags&unix.MSG_CTRUNC != 0, err
}

func sendRights(conn *net.UnixConn, b []byte, fd int) error {
	_, _, err := conn.WriteMsgUnix(b, unix.UnixRights(fd), nil)
	return err
}

// check is done in an order that asks a file system nothing before the kernel
// has said what it knows by itself.
func (r PassRules) check(fd int, write bool) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	mode := unix.O_RDONLY
	if write {
		mode = unix.O_WRONLY
	}
	switch {
	case flags&unix.O_PATH != 0:
		return errors.New("a place and no open file")
	case flags&unix.O_ACCMODE != mode:
		return fmt.Errorf("opened with access mode %d, not %d", flags&unix.O_ACCMODE, mode)
	case flags&(unix.O_APPEND|unix.O_DIRECT) != 0:
		return fmt.Errorf("opened with flags %#x", flags)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("no regular file, mode %#o", st.Mode)
	}
	return r.checkPlace(fd, st.Dev, write)
}

// checkPlace looks at the file system: what others are made of may block, lie
// or be charged to the reader.
func (r PassRules) checkPlace(fd int, dev uint64, write bool) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	switch int64(fs.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return nil
	case unix.TMPFS_MAGIC: // a memfd too: its mount is the kernel's own, and in no list
		if !write || slices.Contains(r.TmpfsWrites, dev) {
			return nil
		}
		return fmt.Errorf("for writing on a tmpfs whose size nobody has set, device %#x", dev)
	}
	return fmt.Errorf("on a file system of type %#x", fs.Type)
}

func versionOf(fd int) (sandbox.FileVersion, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return sandbox.FileVersion{Dev: st.Dev, Ino: st.Ino, Nlink: uint64(st.Nlink), Mode: st.Mode, UID: st.Uid, GID: st.Gid,
		Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano()}, err
}

// sendTo sends at most want bytes from the offset on by sendfile(2); fewer
// without an error are the file's end.
func (p *Passed) sendTo(conn syscall.Conn, want int64) (sent int64, err error) {
	to, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = p.control(func(file int) error {
		var failed error
		err := to.Write(func(fd uintptr) bool {
			for sent < want {
				n, err := unix.Sendfile(int(fd), file, &p.offset, int(want-sent))
				switch {
				case err == syscall.EINTR:
				case err == syscall.EAGAIN:
					return false
				case err != nil || n == 0:
					failed = err
					return true
				}
				sent += int64(max(n, 0))
			}
			return true
		})
		if err == nil {
			err = failed
		}
		return err
	})
	return sent, err
}

// fillFrom moves at most want bytes from conn to the offset by splice(2);
// fewer without an error are the end of what conn sends.
func (p *Passed) fillFrom(conn syscall.Conn, want int64) (moved int64, err error) {
	from, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, err
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	unix.FcntlInt(uintptr(pipe[0]), unix.F_SETPIPE_SZ, chunk) // as it is where that is too much
	err = p.control(func(file int) error {
		for moved < want {
			n, err := drainTo(from, pipe[1], int(min(want-moved, chunk)))
			if err != nil || n == 0 {
				return err
			}
			if err := p.pour(pipe[0], file, n); err != nil {
				return &writeError{err}
			}
			moved += int64(n)
		}
		return nil
	})
	return moved, err
}

// drainTo moves what a socket has to an empty pipe; zero is its end.
func drainTo(from syscall.RawConn, pipe, most int) (n int, err error) {
	failed := from.Read(func(fd uintptr) bool {
		for {
			var got int64
			got, err = unix.Splice(int(fd), nil, pipe, nil, most, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
			if n = int(max(got, 0)); err != syscall.EINTR {
				return err != syscall.EAGAIN
			}
		}
	})
	if failed != nil {
		return 0, failed
	}
	return n, err
}

// pour empties a pipe of n bytes into the file.
func (p *Passed) pour(pipe, file, n int) error {
	for n > 0 {
		m, err := unix.Splice(pipe, nil, file, &p.offset, n, unix.SPLICE_F_MOVE)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return err
		case m == 0:
			return syscall.EIO
		}
		n -= int(m)
	}
	return nil
}
