package dataport

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/controld/controld/sandbox"
)

// chunk is how much one call into the kernel may move: so much that the call
// costs nothing beside it, so little that streams take turns and an end is
// noticed soon.
const chunk = 1 << 20

// maxTick is the longest time between two looks at a connection that does not
// move.
const maxTick = 5 * time.Second

// bufferPool holds the buffers of copies that the kernel cannot do.
var bufferPool = sync.Pool{New: func() any { b := make([]byte, chunk/4); return &b }}

// Pump moves bytes between connections and files.
type Pump struct {
	stall   time.Duration
	splices chan struct{} // one slot a splice pipe; nil: no bound
}

// NewPump returns a pump that gives up after stall without progress. At most
// splices receptions use a pipe of the kernel at once, the others a buffer of
// 1 MiB: an ordinary user gets 64 pipes of 1 MiB and then only slow small
// ones, see pipe(7). Zero means no bound.
func NewPump(stall time.Duration, splices int) *Pump {
	p := &Pump{stall: stall}
	if splices > 0 {
		p.splices = make(chan struct{}, splices)
	}
	return p
}

// Stall is how long the pump waits without progress.
func (p *Pump) Stall() time.Duration { return p.stall }

// tick is how often a blocked call looks up.
func (p *Pump) tick() time.Duration { return min(p.stall/4, maxTick) }

// Send sends length bytes of r, or all where length is not known, and returns
// how many the socket took. ended is asked when a call was interrupted. A
// client that takes nothing for the stall time is [sandbox.KindStalled], one
// that is gone [sandbox.KindAborted]; fewer bytes than length, without an
// error of r, are io.ErrUnexpectedEOF.
func (p *Pump) Send(conn net.Conn, r io.Reader, length sandbox.Optional[int64], ended func() bool) (int64, error) {
	if file, ok := r.(*os.File); ok {
		if rf, ok := conn.(io.ReaderFrom); ok {
			return p.sendFile(conn, rf, file, length, ended)
		}
	}
	return p.sendCopy(conn, r, length, ended)
}

// sendFile is the loop of sendfile(2).
func (p *Pump) sendFile(conn net.Conn, to io.ReaderFrom, file *os.File, length sandbox.Optional[int64], ended func() bool) (int64, error) {
	var sent int64
	watch := p.watch()
	for !length.Known || sent < length.Value {
		want := int64(chunk)
		if length.Known {
			want = min(want, length.Value-sent)
		}
		conn.SetWriteDeadline(time.Now().Add(p.tick()))
		if ended() {
			return sent, errEnded
		}
		n, err := to.ReadFrom(&io.LimitedReader{R: file, N: want})
		sent += n
		if err := watch.after(conn, n, err); err != nil {
			return sent, err
		}
		if err == nil && n < want {
			return sent, short(length)
		}
	}
	return sent, nil
}

func short(length sandbox.Optional[int64]) error {
	if length.Known {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// sendCopy is the loop for everything that the kernel cannot send by itself.
func (p *Pump) sendCopy(conn net.Conn, r io.Reader, length sandbox.Optional[int64], ended func() bool) (int64, error) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	var sent int64
	for !length.Known || sent < length.Value {
		b := *buf
		if length.Known {
			b = b[:min(int64(len(b)), length.Value-sent)]
		}
		n, rerr := r.Read(b)
		m, err := p.write(conn, b[:n], ended)
		sent += int64(m)
		if err != nil {
			return sent, err
		}
		if rerr == io.EOF {
			if length.Known && sent < length.Value {
				return sent, io.ErrUnexpectedEOF
			}
			return sent, nil
		}
		if rerr != nil {
			return sent, rerr
		}
	}
	return sent, nil
}

// write writes all of b, however slowly the peer takes it.
func (p *Pump) write(conn net.Conn, b []byte, ended func() bool) (int, error) {
	written := 0
	watch := p.watch()
	for written < len(b) {
		conn.SetWriteDeadline(time.Now().Add(p.tick()))
		if ended() {
			return written, errEnded
		}
		n, err := conn.Write(b[written:])
		written += n
		if err := watch.after(conn, int64(n), err); err != nil {
			return written, err
		}
	}
	return written, nil
}

// Received is how a reception stopped.
type Received struct {
	// Bytes have reached the writer.
	Bytes int64
	// EOF is true when the peer ended its sending side.
	EOF bool
	// More is true when a byte beyond the wanted ones was seen.
	More bool
}

// Receive moves what conn sends to w until as many bytes have arrived as
// wanted names, or the peer ends, or wanted says that it is over. wanted is
// asked again after every interruption (a deadline in the past).
func (p *Pump) Receive(conn net.Conn, w io.Writer, wanted func() (bytes sandbox.Optional[int64], over bool)) (Received, error) {
	var got Received
	watch := p.watch()
	for {
		conn.SetReadDeadline(time.Now().Add(p.tick()))
		want, over := wanted()
		if over {
			return got, errEnded
		}
		limit := int64(chunk)
		if want.Known {
			limit = min(limit, want.Value-got.Bytes)
		}
		if limit <= 0 {
			got.More = want.Value < got.Bytes || moreWaits(conn)
			return got, nil
		}
		n, err := p.receiveUpTo(conn, w, limit)
		got.Bytes += n
		if err == io.EOF {
			got.EOF = true
			return got, nil
		}
		if err := watch.after(conn, n, err); err != nil {
			return got, err
		}
	}
}

// receiveUpTo moves at most limit bytes and returns io.EOF at the end. It may
// return early only with an error.
func (p *Pump) receiveUpTo(conn net.Conn, w io.Writer, limit int64) (int64, error) {
	file, ok := w.(*os.File)
	if !ok || !spliceable(conn) {
		return receiveCopy(conn, w, limit)
	}
	if !p.takeSplice() {
		return receiveLarge(conn, file, limit)
	}
	defer p.freeSplice()
	n, err := file.ReadFrom(&io.LimitedReader{R: conn, N: limit})
	if err == nil && n < limit {
		err = io.EOF
	}
	return n, err
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

func receiveLarge(conn net.Conn, w io.Writer, limit int64) (int64, error) {
	buf := largePool.Get().(*[]byte)
	defer largePool.Put(buf)
	return receiveInto(conn, w, (*buf)[:min(int64(len(*buf)), limit)])
}

func receiveCopy(conn net.Conn, w io.Writer, limit int64) (int64, error) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	return receiveInto(conn, w, (*buf)[:min(int64(len(*buf)), limit)])
}

// receiveInto moves one buffer's worth.
func receiveInto(conn net.Conn, w io.Writer, b []byte) (int64, error) {
	n, rerr := conn.Read(b)
	m, werr := w.Write(b[:n])
	if werr != nil {
		return int64(m), &writeError{werr}
	}
	return int64(n), rerr
}

// writeError marks an error as that of the writer, so that a proxy does not
// take a broken inner connection for a broken outer one.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// errEnded says that a pump was stopped because its transfer had ended.
var errEnded = errors.New("transfer has ended")

// watch measures time without progress.
func (p *Pump) watch() *watch { return &watch{stall: p.stall, last: time.Now()} }

type watch struct {
	stall time.Duration
	last  time.Time // of progress
}

// after judges a call that moved n bytes: an error, a stall, or go on.
func (w *watch) after(conn net.Conn, n int64, err error) error {
	now := time.Now()
	if n > 0 {
		w.last = now
	}
	if err == nil {
		w.last = now
		return nil
	}
	if !isTimeout(err) {
		return Classify(err)
	}
	if now.Sub(w.last) >= w.stall {
		return &sandbox.Error{Kind: sandbox.KindStalled, Op: "transfer", Message: "no progress for " + w.stall.String()}
	}
	if peerDead(conn) {
		return &sandbox.Error{Kind: sandbox.KindAborted, Op: "transfer", Outcome: sandbox.OutcomeNone, Message: "the peer is dead"}
	}
	return nil
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// Classify turns an error of a pump into a typed one: a peer that is gone is
// [sandbox.KindAborted], an errno of a file keeps its kind.
func Classify(err error) error {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return err
	}
	var we *writeError
	if errors.As(err, &we) {
		return sandbox.AsError("transfer", "", we.err)
	}
	var no syscall.Errno
	gone := errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.ErrUnexpectedEOF)
	if errors.As(err, &no) {
		switch no {
		case syscall.ECONNRESET, syscall.EPIPE, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENOTCONN, syscall.ECONNABORTED:
			gone = true
		default:
			return sandbox.FromErrno("transfer", "", no)
		}
	}
	if gone {
		return &sandbox.Error{Kind: sandbox.KindAborted, Op: "transfer", Outcome: sandbox.OutcomeNone,
			Message: "the peer closed the data connection", Err: err}
	}
	return sandbox.AsError("transfer", "", err)
}

// moreWaits looks once, without waiting, whether a byte lies unread.
func moreWaits(conn net.Conn) bool {
	conn.SetReadDeadline(time.Time{})
	if waits, known := peekNow(conn); known {
		return waits
	}
	conn.SetReadDeadline(time.Now())
	var b [1]byte
	n, _ := conn.Read(b[:])
	return n > 0
}
