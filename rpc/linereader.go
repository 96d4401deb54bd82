package rpc

import (
	"bytes"
	"errors"
	"io"
	"math/bits"
	"sync"
)

// ErrLineTooLong is what a [LineReader] returns for a line over its limit.
var ErrLineTooLong = errors.New("rpc: line too long")

// LineReader reads lines of bounded length. While it waits for the first
// byte of a line it holds a small buffer only; longer lines borrow a larger
// one. It is for one goroutine.
type LineReader struct {
	src  io.Reader
	most int
	buf  []byte
	// buf[begin:end] was read and not returned; up to scanned there is no
	// end of line in it.
	begin, scanned, end int
	// eager readers keep the larger buffer while they wait.
	eager bool
	small [smallLine]byte
}

const (
	smallLine = 512
	// Buffers of up to 1<<maxClass bytes are pooled.
	minClass, maxClass = 14, 20
	// usualLine is what a reader borrows first, if its limit is not lower.
	usualLine = 64 << 10
)

// lines holds read buffers by size, 16 KiB to 1 MiB.
var lines [maxClass - minClass + 1]sync.Pool

// NewLineReader returns a reader of lines of at most most bytes, their end
// not counted.
func NewLineReader(src io.Reader, most int) *LineReader {
	l := &LineReader{src: src, most: most}
	l.buf = l.small[:]
	return l
}

// SetMost changes the limit for the lines to come.
func (l *LineReader) SetMost(most int) { l.most = most }

// Next returns the next line that is not empty, without its end. It is valid
// until the next call. A line cut short by the end of the input is io.EOF.
func (l *LineReader) Next() ([]byte, error) {
	for {
		if line, ok := l.line(); ok {
			if len(line) > l.most {
				return nil, ErrLineTooLong
			}
			if len(bytes.TrimLeft(line, " \t\r")) > 0 {
				return line, nil
			}
			continue
		}
		if l.end-l.begin > l.most {
			return nil, ErrLineTooLong
		}
		l.makeRoom()
		n, err := l.src.Read(l.buf[l.end:])
		l.end += n
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// Waiting tells whether something was read behind the last line.
func (l *LineReader) Waiting() bool { return l.begin < l.end }

// Rest returns what was read behind the last line. It is for handing the
// connection on to another protocol.
func (l *LineReader) Rest() []byte { return l.buf[l.begin:l.end] }

// Release gives borrowed memory back; the reader is not used afterwards.
func (l *LineReader) Release() { l.swap(nil) }

// line takes a line from the buffer.
func (l *LineReader) line() ([]byte, bool) {
	i := bytes.IndexByte(l.buf[l.scanned:l.end], '\n')
	if i < 0 {
		l.scanned = l.end
		return nil, false
	}
	line := l.buf[l.begin : l.scanned+i]
	l.begin = l.scanned + i + 1
	l.scanned = l.begin
	return line, true
}

// makeRoom leaves room to read into, in the smallest buffer that will do.
func (l *LineReader) makeRoom() {
	held, full := l.end-l.begin, l.end == len(l.buf)
	small := len(l.buf) == smallLine
	switch {
	case held == 0 && l.eager && (small || len(l.buf) > 1<<maxClass):
		l.grow(0) // what one very long line took is not kept
	case held == 0 && small == full && !l.eager:
		// A small buffer that was filled: more is waiting. A borrowed one
		// that was not: nothing is.
		if small {
			l.grow(0)
		} else {
			l.swap(nil)
		}
	case held == 0:
		l.begin, l.scanned, l.end = 0, 0, 0
	case held == len(l.buf):
		l.grow(2 * held)
	case full:
		l.swap(l.buf)
	}
}

// grow takes a buffer of about that size, but no larger than the limit needs.
func (l *LineReader) grow(size int) {
	l.swap(borrow(min(max(size, usualLine), max(l.most+2, 1<<minClass))))
}

// swap moves what is held to the start of another buffer, the small one for
// nil, and gives the old one back.
func (l *LineReader) swap(to []byte) {
	if to == nil {
		to = l.small[:]
	}
	old := l.buf
	n := copy(to, old[l.begin:l.end])
	l.scanned -= l.begin
	l.buf, l.begin, l.end = to, 0, n
	l.scanned = min(max(l.scanned, 0), n)
	if &old[0] != &to[0] {
		giveBack(old)
	}
}

func borrow(size int) []byte {
	class := max(bits.Len(uint(size-1)), minClass)
	if class > maxClass {
		return make([]byte, size)
	}
	if b, ok := lines[class-minClass].Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 1<<class)
}

func giveBack(b []byte) {
	class := bits.Len(uint(len(b))) - 1
	if class < minClass || class > maxClass || len(b) != 1<<class {
		return
	}
	lines[class-minClass].Put(&b)
}
