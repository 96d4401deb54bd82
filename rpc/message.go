package rpc

import (
	"sync"
	"sync/atomic"
)

// Message is one line on its way to a peer.
type Message struct {
	buf   []byte
	spans []span
	// released is called once, when the message was sent or dropped.
	released func()

	// The place of the sender in the message.
	pos, span, from int
	// left is what the writer's queue counts it as.
	left int64
	// began is set once a byte of it may have reached the peer.
	began bool
	// others counts those that look at the message beside its sender.
	others atomic.Int32
}

// messages holds messages with a small buffer.
var messages = sync.Pool{New: func() any { return &Message{buf: make([]byte, 0, 512)} }}

func newMessage() *Message { return messages.Get().(*Message) }

// Size is the length of the line in bytes, without its end.
func (m *Message) Size() int64 {
	n := int64(len(m.buf))
	for i := range m.spans {
		n += int64(m.spans[i].size)
	}
	return n
}

// OnRelease has f called once when the message was sent or dropped: then
// nothing refers to its contents any more.
func (m *Message) OnRelease(f func()) { m.released = f }

// Drop gives up a message that is not sent.
func (m *Message) Drop() { m.release() }

func (m *Message) refer(s span) {
	s.at = len(m.buf)
	m.spans = append(m.spans, s)
}

// release ends the life of a message.
func (m *Message) release() {
	if m.others.Add(-1) >= 0 {
		return
	}
	if m.released != nil {
		m.released()
	}
	if cap(m.buf) > 4<<10 || cap(m.spans) > 4 {
		return
	}
	clear(m.spans)
	buf, spans := m.buf[:0], m.spans[:0]
	*m = Message{buf: buf, spans: spans}
	messages.Put(m)
}

// whole returns the line when it needs no further encoding.
func (m *Message) whole() ([]byte, bool) {
	return m.buf, len(m.spans) == 0 && m.pos == 0
}

// fill appends the next part of the message to what dst has room for, and
// tells whether that was the last.
func (m *Message) fill(dst []byte) ([]byte, bool) {
	for {
		end := len(m.buf)
		if m.span < len(m.spans) {
			end = m.spans[m.span].at
		}
		n := min(end-m.pos, cap(dst)-len(dst))
		dst = append(dst, m.buf[m.pos:m.pos+n]...)
		m.pos += n
		if m.pos < end {
			return dst, false
		}
		if m.span == len(m.spans) {
			return dst, true
		}
		s := &m.spans[m.span]
		dst, m.from = s.appendPiece(dst, m.from)
		if m.from < len(s.data) {
			return dst, false
		}
		m.span, m.from = m.span+1, 0
	}
}

// JoinBatch makes one line of the answers to a batch and takes them over.
func JoinBatch(answers []*Message) *Message {
	out := newMessage()
	out.buf = append(out.buf, '[')
	for i, m := range answers {
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		base := len(out.buf)
		out.buf = append(out.buf, m.buf...)
		for _, s := range m.spans {
			s.at += base
			out.spans = append(out.spans, s)
		}
	}
	out.buf = append(out.buf, ']')
	out.released = func() {
		for _, m := range answers {
			m.release()
		}
	}
	return out
}
