package dataport

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/controld/controld/fair"
	"github.com/controld/controld/sandbox"
)

// chunk is what one buffer takes, and how closely a durable reception is
// followed; what the kernel moves by itself goes in [sandbox.Pieces].
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
	turns   *fair.Gate
	quota   func(tenant string) *rate.Limiter
	sends   atomic.Int64 // that run now
}

// NewPump returns a pump. Nothing needs to be closed.
func NewPump(o PumpOptions) *Pump {
	p := &Pump{stall: o.Stall, turns: o.Turns, quota: o.Quota}
	if o.Splices > 0 {
		p.splices = make(chan struct{}, o.Splices)
	}
	return p
}

// Stall is how long the pump waits without progress.
func (p *Pump) Stall() time.Duration { return p.stall }

// tick is how often a blocked call looks up.
func (p *Pump) tick() time.Duration { return min(p.stall/4, maxTick) }

// shortMost is how long a file may be that goes in one write with the welcome:
// a copy of so little costs less than a call of its own.
const shortMost = 64<<10 - len(Welcome)

// Send sends the welcome and length bytes of r for a tenant, or all where
// length is not known, and returns how many of r the socket took. ended is asked when a call
// was interrupted. A client that takes nothing for the stall time is
// [sandbox.KindStalled], one that is gone [sandbox.KindAborted]; fewer bytes
// than length, without an error of r, are io.ErrUnexpectedEOF.
func (p *Pump) Send(tenant string, conn net.Conn, r io.Reader, length sandbox.Optional[int64], ended func() bool) (int64, error) {
	move := kernelSend(conn, r)
	if move != nil && length.Known && length.Value <= int64(shortMost) {
		return p.sendShort(conn, r, int(length.Value), ended)
	}
	n := p.sends.Add(1)
	defer p.sends.Add(-1)
	boundUnsent(Bare(conn), unsentShare(n))
	if _, err := p.write(conn, []byte(Welcome), ended); err != nil {
		return 0, err
	}
	pace := p.pacer(tenant)
	pace.smooth(conn)
	if move != nil {
		return p.sendFile(pace, conn, move, length, ended)
	}
	return p.sendCopy(pace, conn, r, length, ended)
}

// kernelSend returns how to have the kernel send at most so many bytes of r,
// nil where it cannot; fewer without an error are the end of r.
func kernelSend(conn net.Conn, r io.Reader) func(want int64) (int64, error) {
	switch file := r.(type) {
	case *os.File:
		if to, ok := conn.(io.ReaderFrom); ok {
			return func(want int64) (int64, error) { return to.ReadFrom(&io.LimitedReader{R: file, N: want}) }
		}
	case *Passed:
		if spliceable(conn) {
			return func(want int64) (int64, error) { return file.sendTo(conn.(syscall.Conn), want) }
		}
	}
	return nil
}

// What may lie in the kernel, not yet sent, is what a peer that does not read
// costs: at most unsentEach a send, which keeps a fast peer supplied, and about
// unsentAll together, far below what the kernel has for all of TCP (tcp_mem,
// see tcp(7)): beyond that it resets connections.
const (
	unsentEach  = 4 << 20
	unsentAll   = 512 << 20
	unsentLeast = 128 << 10
)

// unsentShare is the bound of a send that starts as the n-th at once.
func unsentShare(n int64) int {
	return int(max(min(unsentEach, unsentAll/n), unsentLeast))
}

// sendShort sends the welcome and all of a file in one write.
func (p *Pump) sendShort(conn net.Conn, file io.Reader, length int, ended func() bool) (int64, error) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	head := copy(*buf, Welcome)
	n, rerr := io.ReadFull(file, (*buf)[head:head+length])
	if rerr == io.EOF {
		rerr = io.ErrUnexpectedEOF // as where some of it was there
	}
	sent, err := p.write(conn, (*buf)[:head+n], ended)
	if err == nil {
		err = rerr
	}
	return int64(max(sent-head, 0)), err
}

// sendFile is the loop of sendfile(2).
func (p *Pump) sendFile(pace *pacer, conn net.Conn, move func(int64) (int64, error), length sandbox.Optional[int64], ended func() bool) (int64, error) {
	var sent int64
	watch := p.watch()
	var pieces sandbox.Pieces
	for !length.Known || sent < length.Value {
		want := pieces.Next()
		if length.Known {
			want = min(want, length.Value-sent)
		}
		want, leave := pace.next(want)
		conn.SetWriteDeadline(time.Now().Add(p.tick()))
		if ended() {
			leave()
			return sent, errEnded
		}
		n, err := move(want)
		leave()
		pace.pay(n, ended)
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
func (p *Pump) sendCopy(pace *pacer, conn net.Conn, r io.Reader, length sandbox.Optional[int64], ended func() bool) (int64, error) {
	buf := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	var sent int64
	for !length.Known || sent < length.Value {
		b := *buf
		if length.Known {
			b = b[:min(int64(len(b)), length.Value-sent)]
		}
		most, leave := pace.next(int64(len(b)))
		n, rerr := r.Read(b[:most])
		m, err := p.write(conn, b[:n], ended)
		leave()
		pace.pay(int64(m), ended)
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
	if below := pacedBelow(conn); below != nil {
		look := func(n int, err error) error { return p.look(below, watch, n, err, ended) }
		below.look.Store(&look)
		defer below.look.Store(nil)
	}
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

// look judges a write below TLS, which must not see its deadline.
func (p *Pump) look(below *paced, watch *watch, n int, err error, ended func() bool) error {
	if stop := watch.after(below.Conn, int64(n), err); stop != nil || err == nil {
		return stop
	}
	below.SetWriteDeadline(time.Now().Add(p.tick()))
	if ended() {
		return errEnded
	}
	return nil
}
