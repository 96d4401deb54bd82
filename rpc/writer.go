package rpc

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// ErrWriteTimeout is the error of a [Writer] whose peer took nothing for the
// write timeout.
var ErrWriteTimeout = errors.New("rpc: the peer does not read")

// errWriterClosed is the error of a Writer that was closed without a cause.
var errWriterClosed = errors.New("rpc: connection closed")

// Writer sends messages on a connection, whole and in order. Whoever sends
// writes as much as the connection takes at once; the rest is written by a
// goroutine that lives until nothing is left. Waiting messages are joined
// into large writes; long contents are encoded piece by piece meanwhile.
type Writer struct {
	conn    writeConn
	try     *tryWriter // nil where the connection cannot be asked
	timeout time.Duration
	onError func(error)
	last    atomic.Int64 // when the peer last accepted a byte, in Unix nanoseconds

	mu     sync.Mutex
	idle   sync.Cond // signalled when active ends, err is set or room appears
	queue  []*Message
	size   int64 // bytes of all messages that were sent and are not yet written
	active bool  // somebody is writing
	err    error
	sender sender // belongs to whoever made the writer active
}

type writeConn interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// NewWriter returns a writer on conn. A peer that accepts no byte for timeout
// ends it; zero means no limit. onError, which may be nil, is told once of the
// write that failed; it must not wait for the writer.
func NewWriter(conn writeConn, timeout time.Duration, onError func(error)) *Writer {
	w := &Writer{conn: conn, try: newTryWriter(conn), timeout: timeout, onError: onError}
	w.idle.L = &w.mu
	w.sender.w = w
	w.last.Store(time.Now().UnixNano())
	return w
}

// Send queues a message and begins to write. It does not wait for the peer.
// After an error the message is dropped.
func (w *Writer) Send(m *Message) error {
	size := m.Size() + 1
	w.mu.Lock()
	if w.err != nil {
		err := w.err
		w.mu.Unlock()
		m.release()
		return err
	}
	m.left = size
	w.queue = append(w.queue, m)
	w.size += size
	if w.active {
		w.mu.Unlock()
		return nil
	}
	w.active = true
	w.mu.Unlock()
	if w.try == nil || !w.sender.run(false) {
		go w.sender.run(true)
	}
	return nil
}

// WaitBelow waits until fewer than bound bytes wait to be written, or until
// the writer ended.
func (w *Writer) WaitBelow(bound int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && w.size >= bound {
		w.idle.Wait()
	}
	return w.err
}

// Flush waits until everything is written and returns nil, or the error that
// ended the writer.
func (w *Writer) Flush() error { return w.WaitBelow(1) }

// Fail ends the writer: what is queued is dropped and later messages are
// refused with err. The first error stays. It does not close the connection,
// which must be closed to end a write that blocks.
func (w *Writer) Fail(err error) {
	w.mu.Lock()
	w.failLocked(err)
	w.mu.Unlock()
}

// Err is the error that ended the writer, nil while it lives.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Wait waits until no goroutine of the writer is left. Use it behind Fail
// and the closing of the connection.
func (w *Writer) Wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.active {
		w.idle.Wait()
	}
}

func (w *Writer) failLocked(err error) {
	if w.err != nil {
		return
	}
	if err == nil {
		err = errWriterClosed
	}
	w.err = err
	for _, m := range w.queue {
		m.release()
	}
	w.queue, w.size = nil, 0
	w.idle.Broadcast()
}

// remove takes a message back that was not begun.
func (w *Writer) remove(m *Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, q := range w.queue {
		if q == m {
			w.queue = append(w.queue[:i:i], w.queue[i+1:]...)
			w.size -= m.left
			m.release()
			return true
		}
	}
	return false
}

// unsent tells that surely no byte of a tracked message reached the peer; it
// may be asked once the writer has failed.
func (w *Writer) unsent(m *Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !m.began
}

// detach makes a message that is still being sent independent of the contents
// it refers to, so that their owner may change them.
func (w *Writer) detach(m *Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range m.spans {
		m.spans[i].data = append([]byte(nil), m.spans[i].data...)
	}
}
