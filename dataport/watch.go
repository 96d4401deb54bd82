package dataport

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/controld/controld/sandbox"
)

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
	if PeerDead(conn) {
		return &sandbox.Error{Kind: sandbox.KindAborted, Op: "transfer", Outcome: sandbox.OutcomeNone, Message: "the peer is dead"}
	}
	return nil
}

// PeerDead tells whether the peer of a connection, of TLS or not, has left what
// was sent to it without an acknowledgement for so long that it is taken for
// dead. Ask every [PeerDeadTick]; then it is told within 45 s. Where the
// transport does not tell it is false.
func PeerDead(conn net.Conn) bool { return peerDead(Bare(conn)) }

// PeerDeadTick is how often [PeerDead] has to be asked.
const PeerDeadTick = maxTick

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
