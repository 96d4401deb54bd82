package rpc

import (
	"errors"
	"os"
	"sync"
	"time"
)

// sender is the one that writes a Writer's queue at the moment; a writer has
// one, which is in use while the writer is active.
type sender struct {
	w *Writer
	// block holds what is being written, out is what is left of it.
	block *[]byte
	out   []byte
	// parts are the messages with bytes in out, in order.
	parts []part
	// partial is the message that goes on behind the block.
	partial *Message
}

// part is a message's place in a block.
type part struct {
	m    *Message
	at   int // where it begins, less what has been written
	last bool
}

// Sizes of the blocks that messages are joined in.
const (
	smallBlock = 4 << 10
	largeBlock = 128 << 10
)

var (
	smallBlocks = sync.Pool{New: func() any { b := make([]byte, 0, smallBlock); return &b }}
	largeBlocks = sync.Pool{New: func() any { b := make([]byte, 0, largeBlock); return &b }}
)

// run writes until nothing is left and returns true; without waiting for the
// peer it returns false when there is more to do.
func (s *sender) run(wait bool) bool {
	for len(s.out) > 0 || s.gather() {
		var n int
		var err error
		if wait {
			n, err = s.write()
		} else {
			n, err = s.w.try.write(s.out)
		}
		more := n < len(s.out)
		if n > 0 {
			s.w.last.Store(time.Now().UnixNano())
		}
		if !s.wrote(n, err) {
			if s.w.onError != nil {
				s.w.onError(err)
			}
			return true
		}
		if more && !wait {
			return false
		}
	}
	return true
}

// gather collects the next block; when nothing is left it ends the sender.
func (s *sender) gather() bool {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || s.partial == nil && len(w.queue) == 0 {
		s.finishLocked()
		return false
	}
	s.takeBlock(w.size)
	s.out = (*s.block)[:0]
	taken := 0
	for {
		if s.partial == nil {
			if taken == len(w.queue) {
				break
			}
			s.partial, w.queue[taken] = w.queue[taken], nil
			taken++
		}
		s.parts = append(s.parts, part{m: s.partial, at: len(s.out)})
		if !s.add() {
			break
		}
	}
	if w.queue = w.queue[taken:]; len(w.queue) == 0 {
		w.queue = nil
	}
	return true
}

// add puts as much of the message into the block as fits and tells whether
// that was all of it.
func (s *sender) add() bool {
	var whole bool
	s.out, whole = s.partial.fill(s.out)
	if !whole || len(s.out) == cap(s.out) {
		return false
	}
	s.out = append(s.out, '\n')
	s.parts[len(s.parts)-1].last = true
	s.partial = nil
	return true
}

// takeBlock sees to a block that fits what waits.
func (s *sender) takeBlock(waiting int64) {
	if s.block != nil && (cap(*s.block) == largeBlock || waiting <= smallBlock) {
		return
	}
	s.dropBlock()
	if waiting <= smallBlock {
		s.block = smallBlocks.Get().(*[]byte)
	} else {
		s.block = largeBlocks.Get().(*[]byte)
	}
}

func (s *sender) dropBlock() {
	switch {
	case s.block == nil:
		return
	case cap(*s.block) == largeBlock:
		largeBlocks.Put(s.block)
	default:
		smallBlocks.Put(s.block)
	}
	s.block = nil
}

// wrote accounts for n bytes of the block and tells whether to go on.
func (s *sender) wrote(n int, err error) bool {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	s.out = s.out[n:]
	for i := range s.parts {
		p := &s.parts[i]
		p.at -= n
		p.m.began = p.m.began || p.at < 0
	}
	if err != nil {
		w.failLocked(err)
		s.finishLocked()
		return false
	}
	if w.err == nil {
		w.size -= int64(n)
	}
	if len(s.out) == 0 {
		s.releaseParts()
	}
	w.idle.Broadcast()
	return true
}

// releaseParts ends the life of the messages that end in the block.
func (s *sender) releaseParts() {
	for _, p := range s.parts {
		if p.last {
			p.m.release()
		}
	}
	clear(s.parts)
	s.parts = s.parts[:0]
}

// finishLocked makes the writer inactive and lets go of everything.
func (s *sender) finishLocked() {
	s.releaseParts()
	if s.partial != nil {
		s.partial.release()
		s.partial = nil
	}
	if cap(s.parts) > 8 {
		s.parts = nil
	}
	s.dropBlock()
	s.out = nil
	s.w.active = false
	s.w.idle.Broadcast()
}

// write writes the block and waits for the peer, giving up when it accepted
// nothing for the timeout.
func (s *sender) write() (int, error) {
	w := s.w
	if w.timeout <= 0 {
		return w.conn.Write(s.out)
	}
	if w.try == nil {
		// A connection that a late write may have broken (TLS): pieces so
		// small that each is one step.
		w.conn.SetWriteDeadline(time.Now().Add(w.timeout))
		n, err := w.conn.Write(s.out[:min(len(s.out), 16<<10)])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ErrWriteTimeout
		}
		return n, err
	}
	defer w.conn.SetWriteDeadline(time.Time{})
	began := time.Now()
	for {
		left := w.timeout - time.Since(began)
		if left <= 0 {
			return 0, ErrWriteTimeout
		}
		w.conn.SetWriteDeadline(time.Now().Add(min(w.timeout/8, left)))
		n, err := w.conn.Write(s.out)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			}
			return n, err
		}
	}
}
