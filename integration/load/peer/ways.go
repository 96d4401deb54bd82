package peer

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Way is one of the ways of size bytes from a socket into a new file. Splice is
// that of the bare pair; the others are there to show that none is faster.
type Way func(conn net.Conn, f *os.File, size int64) error

// Splice moves the pages through a pipe. Over TLS there are none: it reads and
// writes.
func Splice(conn net.Conn, f *os.File, size int64) error {
	if _, ok := conn.(*tls.Conn); ok {
		return copyLoop(f, conn, size)
	}
	_, err := io.CopyN(f, conn, size)
	return err
}

// CopyOver reads into 1 MiB and writes it.
func CopyOver(conn net.Conn, f *os.File, size int64) error {
	buf := make([]byte, message)
	for left := size; left > 0; {
		n, err := conn.Read(buf[:min(left, message)])
		if _, err := f.Write(buf[:n]); err != nil {
			return err
		}
		if left -= int64(n); err != nil && left > 0 {
			return err
		}
	}
	return nil
}

// IntoMap reads into the mapped file, so that the bytes are copied once.
func IntoMap(conn net.Conn, f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(conn, m)
	return errors.Join(err, unix.Munmap(m))
}

// Pipeline has one thread splice from the socket into a pipe of 1 MiB, and
// another from the pipe into the file.
func Pipeline(conn net.Conn, f *os.File, size int64) error {
	here, there, err := os.Pipe()
	if err != nil {
		return err
	}
	defer here.Close()
	raw, err := there.SyscallConn()
	if err != nil {
		return err
	}
	raw.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, message) })
	filled := make(chan error, 1)
	go func() {
		err := fillPipe(conn.(*net.TCPConn), there, size)
		there.Close()
		filled <- err
	}()
	rfd, wfd := int(here.Fd()), int(f.Fd()) // both block from here on
	for left := size; left > 0; {
		n, err := unix.Splice(rfd, nil, wfd, nil, int(min(left, message)), unix.SPLICE_F_MOVE)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return errors.Join(err, <-filled)
		}
		left -= n
	}
	return <-filled
}

// fillPipe splices size bytes of conn into a pipe.
func fillPipe(conn *net.TCPConn, pipe *os.File, size int64) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	wfd := int(pipe.Fd()) // blocks from here on
	for left := size; left > 0; {
		var n int64
		var serr error
		err := raw.Read(func(fd uintptr) bool {
			n, serr = unix.Splice(int(fd), nil, wfd, nil, int(min(left, message)), unix.SPLICE_F_MOVE)
			return serr != unix.EAGAIN
		})
		if err = errors.Join(err, serr); err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}
