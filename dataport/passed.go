package dataport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/controld/controld/sandbox"
)

// PassRules say which files may change hands in place of their bytes. Both
// sides hold to them: a server offers nothing else, and whoever receives
// something else takes nothing. What passes is a regular file on ext2, ext3,
// ext4, xfs, btrfs, overlayfs or, to be read, on tmpfs, opened for just what
// was asked, and neither for appending nor past the cache.
type PassRules struct {
	// TmpfsWrites lists the tmpfs mounts, by their st_dev, on which a file may
	// be written: those that somebody trusted has given a size. Its pages are
	// charged to whoever writes them.
	TmpfsWrites []uint64
}

// Check returns why a file may not be handed over, for writing or for reading.
// It asks the file's file system, which may take its time.
func (r PassRules) Check(file *os.File, write bool) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var bad error
	if err := raw.Control(func(fd uintptr) { bad = r.check(int(fd), write) }); err != nil {
		return err
	}
	return bad
}

// passedAnswer is what comes with a descriptor.
const passedAnswer = "FD\n"

// Passed is a file that was received in place of its bytes, with the
// connection that it came on, the lease. It reads and writes at an offset of
// its own, for that of the descriptor is its sender's as well. It is used by
// one goroutine; Close may be called from any.
type Passed struct {
	file   *os.File
	lease  net.Conn
	offset int64
}

var errUnsupported = &sandbox.Error{Kind: sandbox.KindUnsupported, Op: opOpen, Outcome: sandbox.OutcomeNone,
	Message: "the file cannot be handed over"}

// OpenFile is like [Open] on one endpoint, and asks for the transfer's file, to
// be read or written. It is [sandbox.KindUnsupported] where that cannot be had;
// the token is still good then. Whatever comes that is not what [PassRules]
// allow is closed, and [sandbox.KindInternal]. The caller closes what it gets.
//
// ctx bounds the wait for an answer; what then came is looked at in its own
// time, see [PassRules.Check].
func OpenFile(ctx context.Context, token string, dial func(context.Context) (net.Conn, error), rules PassRules, write bool) (*Passed, error) {
	if len(token) != tokenLength {
		return nil, noToken()
	}
	conn, err := dial(ctx)
	if err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: opOpen, Outcome: sandbox.OutcomeNone,
			Reason: "unreachable", Message: err.Error(), Err: err}
	}
	local, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errUnsupported
	}
	p := &Passed{lease: conn}
	_, err = present(ctx, conn, magicDescriptor+token+"\n", nil, func(net.Conn) (err error) {
		p.file, err = receiveFile(local)
		return err
	})
	if err != nil {
		p.Close()
		return nil, err
	}
	if err := rules.Check(p.file, write); err != nil {
		p.Close()
		return nil, lied(err.Error())
	}
	return p, nil
}

// lied is the error of a descriptor that is not what it should be.
func lied(why string) error {
	return &sandbox.Error{Kind: sandbox.KindInternal, Op: opOpen, Outcome: sandbox.OutcomeNone,
		Message: "the server handed over what may not be: " + why}
}

// receiveFile reads the answer to a token with what it carries.
func receiveFile(conn *net.UnixConn) (*os.File, error) {
	var head [len(passedAnswer)]byte
	var files []*os.File
	n, err := receiveWith(conn, head[:], &files)
	if err == nil && string(head[:n]) == passedAnswer && len(files) == 1 {
		return files[0], nil
	}
	for _, f := range files {
		f.Close()
	}
	switch {
	case err != nil:
		return nil, err
	case len(files) > 0:
		return nil, lied(fmt.Sprintf("%d descriptors with %q", len(files), head[:n]))
	case string(head[:n]) == passedAnswer:
		return nil, lied("no descriptor")
	}
	err = readRefusal(conn, string(head[:n]))
	if sandbox.KindOf(err) == sandbox.KindUnsupported {
		return nil, errUnsupported
	}
	return nil, err
}

// receiveWith fills b, and appends the descriptors that come with any of it.
func receiveWith(conn *net.UnixConn, b []byte, files *[]*os.File) (n int, err error) {
	for n < len(b) {
		had, most := len(*files), len(b)
		if n == 0 {
			most = 1 // or it would not be known with which byte they came
		}
		got, lost, err := receiveRights(conn, b[n:most], files)
		if err == nil && (lost || n > 0 && len(*files) > had) {
			err = lied("descriptors that are too many, come late or find no room")
		}
		if err != nil {
			return n, err
		}
		if got == 0 {
			return n, io.ErrUnexpectedEOF
		}
		n += got
	}
	return n, nil
}

// PassFile says to whoever presented a token that its file comes with this.
func PassFile(conn net.Conn, file *os.File) error {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return errUnsupported
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	// The file may be closed meanwhile, and its number be another's.
	if err := raw.Control(func(fd uintptr) { sent = sendRights(local, []byte(passedAnswer), int(fd)) }); err != nil {
		return err
	}
	return sent
}

// Version looks at the file.
func (p *Passed) Version() (sandbox.FileVersion, error) {
	var v sandbox.FileVersion
	err := p.control(func(fd int) (err error) {
		v, err = versionOf(fd)
		return err
	})
	return v, err
}

// control runs f on the descriptor, which stays open meanwhile.
func (p *Passed) control(f func(fd int) error) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// SetOffset has the next Read begin at an offset in bytes.
func (p *Passed) SetOffset(offset int64) { p.offset = offset }

// Read implements io.Reader.
func (p *Passed) Read(b []byte) (int, error) {
	n, err := p.file.ReadAt(b, p.offset)
	p.offset += int64(n)
	return n, err
}

// Write implements io.Writer.
func (p *Passed) Write(b []byte) (int, error) {
	n, err := p.file.WriteAt(b, p.offset)
	p.offset += int64(n)
	return n, err
}

// CloseFile closes the file and keeps the lease: a new version is closed by
// everybody before it gets its name.
func (p *Passed) CloseFile() error { return p.file.Close() }

// Close closes the file and ends the lease. It may be called twice.
func (p *Passed) Close() error {
	err := p.lease.Close()
	if p.file != nil {
		err = errors.Join(err, p.file.Close())
	}
	return err
}
