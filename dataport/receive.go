package dataport

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/controld/controld/sandbox"
)

// Received is how a reception stopped.
type Received struct {
	// Bytes have reached the writer.
	Bytes int64
	// EOF is true when the peer ended its sending side.
	EOF bool
	// More is true when a byte beyond the wanted ones was seen.
	More bool
}

// Receive moves what conn sends to w, for a tenant, until as many bytes have
// arrived as wanted names, or the peer ends, or wanted says that it is over.
// wanted is asked again after every interruption (a deadline in the past).
// durable has a large file written to its disk while it comes in, for the
// fsync to come.
func (p *Pump) Receive(tenant string, conn net.Conn, w io.Writer, durable bool, wanted func() (bytes sandbox.Optional[int64], over bool)) (Received, error) {
	var got Received
	var disk *behind
	if durable {
		disk = newBehind(w)
	}
	pace := p.pacer(tenant)
	watch := p.watch()
	var pieces sandbox.Pieces
	for {
		conn.SetReadDeadline(time.Now().Add(p.tick()))
		want, over := wanted()
		if over {
			return got, errEnded
		}
		limit := int64(chunk)
		if disk == nil { // which follows closely
			limit = pieces.Next()
		}
		if want.Known {
			limit = min(limit, want.Value-got.Bytes)
		}
		if limit <= 0 {
			got.More = want.Value < got.Bytes || moreWaits(conn)
			return got, nil
		}
		limit, leave := pace.next(limit)
		n, err := p.receiveUpTo(conn, w, limit)
		leave()
		pace.pay(n, func() bool { _, over := wanted(); return over })
		got.Bytes += n
		if err == io.EOF {
			got.EOF = true
			return got, nil
		}
		if err := watch.after(conn, n, err); err != nil {
			return got, err
		}
		if err := disk.advance(got.Bytes); err != nil {
			return got, &writeError{err}
		}
	}
}

// receiveUpTo moves at most limit bytes and returns io.EOF at the end. It may
// return early only with an error.
func (p *Pump) receiveUpTo(conn net.Conn, w io.Writer, limit int64) (int64, error) {
	move := kernelReceive(conn, w)
	if move == nil {
		return receiveCopy(conn, w, limit)
	}
	if !p.takeSplice() {
		return receiveLarge(conn.(syscall.Conn), w, limit)
	}
	defer p.freeSplice()
	n, err := move(limit)
	if err == nil && n < limit {
		err = io.EOF
	}
	return n, err
}

// kernelReceive returns how to have the kernel move at most so many bytes to w,
// nil where it cannot; fewer without an error are the end of what conn sends.
func kernelReceive(conn net.Conn, w io.Writer) func(limit int64) (int64, error) {
	if !spliceable(conn) {
		return nil
	}
	switch file := w.(type) {
	case *os.File:
		return func(limit int64) (int64, error) { return file.ReadFrom(&io.LimitedReader{R: conn, N: limit}) }
	case *Passed:
		return func(limit int64) (int64, error) { return file.fillFrom(conn.(syscall.Conn), limit) }
	}
	return nil
}

func spliceable(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

func (p *Pump) takeSplice() bool {
	if p.splices == nil {
		return true
	}
	select {
	case p.splices <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p *Pump) freeSplice() {
	if p.splices != nil {
		<-p.splices
	}
}

// largePool holds the 1 MiB buffers that stand in for splice pipes.
var largePool = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// receiveLarge moves what one read gives. It takes a buffer when there is
// something to read, so that a thousand waiting receptions hold none.
func receiveLarge(conn syscall.Conn, w io.Writer, limit int64) (int64, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var rerr, werr error
	err = raw.Read(func(fd uintptr) bool {
		buf := largePool.Get().(*[]byte)
		defer largePool.Put(buf)
		n, rerr = readNow(int(fd), (*buf)[:min(int64(len(*buf)), limit)])
		if rerr == syscall.EAGAIN {
			return false
		}
		n, werr = w.Write((*buf)[:n])
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case werr != nil:
		return int64(n), &writeError{werr}
	case rerr == nil && n == 0:
		return 0, io.EOF
	}
	return int64(n), rerr
}

// readNow is read(2), of a descriptor that does not block.
func readNow(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

func receiveCopy(conn net.Conn, w io.Writer, limit int64) (int64, error) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	return receiveInto(conn, w, (*buf)[:min(int64(len(*buf)), limit)])
}

// receiveInto moves one buffer's worth. TLS gives a record at a time, of which
// a file takes many in one write; whoever else it goes to may wait for them.
func receiveInto(conn net.Conn, w io.Writer, b []byte) (int64, error) {
	n, rerr := conn.Read(b)
	if isFile(w) {
		for m := 0; n < len(b) && rerr == nil; n += m {
			m, rerr = conn.Read(b[n:])
		}
	}
	m, werr := w.Write(b[:n])
	if werr != nil {
		return int64(m), &writeError{werr}
	}
	return int64(n), rerr
}

func isFile(w io.Writer) bool {
	switch w.(type) {
	case *os.File, *Passed:
		return true
	}
	return false
}

// writeError marks an error as that of the writer, so that a proxy does not
// take a broken inner connection for a broken outer one.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// moreWaits looks once, without waiting, whether a byte lies unread.
func moreWaits(conn net.Conn) bool {
	conn.SetReadDeadline(time.Time{})
	if waits, known := peekNow(conn); known {
		return waits
	}
	var b [1]byte
	conn.SetReadDeadline(time.Now())
	if n, _ := conn.Read(b[:]); n > 0 {
		return true
	}
	if waits, known := peekNow(Bare(conn)); !known || !waits {
		return false
	}
	// What waits below TLS may be a goodbye as well as data.
	conn.SetReadDeadline(time.Now().Add(LingerTime))
	n, _ := conn.Read(b[:])
	return n > 0
}
