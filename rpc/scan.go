package rpc

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// decoder reads one line, once. A syntax fault (no JSON, invalid UTF-8, a
// lone surrogate, too deep) is sticky and ends everything; a fault of
// meaning is remembered, the value skipped and the rest still checked, so
// that a line that is no JSON is never answered as bad params.
type decoder struct {
	data  []byte
	pos   int
	depth int
	// broken says what is wrong with the JSON itself, if anything.
	broken string
	// bad is the first fault of meaning and the field it lies in.
	bad, badField string
	// field is the field being read, for bad.
	field string
	// keyless makes the fields of the capability keys unknown.
	keyless bool
}

func (d *decoder) fail(what string) {
	if d.broken == "" {
		d.broken = what
	}
	d.pos = len(d.data)
}

// mismatch remembers a fault of meaning in the field being read.
func (d *decoder) mismatch(what string) { d.mismatchIn(d.field, what) }

func (d *decoder) mismatchIn(field, what string) {
	if d.bad == "" {
		d.badField, d.bad = field, what
	}
}

func (d *decoder) space() {
	for d.pos < len(d.data) {
		switch d.data[d.pos] {
		case ' ', '\t', '\r', '\n':
			d.pos++
		default:
			return
		}
	}
}

// peek returns the first byte of the next value, zero at the end.
func (d *decoder) peek() byte {
	d.space()
	if d.pos < len(d.data) {
		return d.data[d.pos]
	}
	return 0
}

// expect takes one byte of punctuation.
func (d *decoder) expect(c byte) bool {
	if d.peek() != c {
		d.fail("unexpected character")
		return false
	}
	d.pos++
	return true
}

// enter and leave count the nesting.
func (d *decoder) enter() bool {
	d.pos++
	d.depth++
	if d.depth > MaxDepth {
		d.fail("nested too deep")
		return false
	}
	return true
}

func (d *decoder) leave() {
	d.pos++
	d.depth--
}

// literal takes true, false or null.
func (d *decoder) literal(word string) bool {
	end := d.pos + len(word)
	if end > len(d.data) || string(d.data[d.pos:end]) != word {
		d.fail("unknown word")
		return false
	}
	d.pos = end
	return true
}

// skip checks one value of any type and returns its text.
func (d *decoder) skip() []byte {
	c := d.peek()
	start := d.pos
	switch {
	case c == '"':
		d.scanString()
	case c == '{':
		d.skipObject()
	case c == '[':
		d.skipArray()
	case c == 't':
		d.literal("true")
	case c == 'f':
		d.literal("false")
	case c == 'n':
		d.literal("null")
	case c == '-' || '0' <= c && c <= '9':
		d.scanNumber()
	default:
		d.fail("a value is missing")
	}
	if d.broken != "" {
		return nil
	}
	return d.data[start:d.pos]
}

func (d *decoder) skipObject() {
	if !d.enter() {
		return
	}
	if d.peek() == '}' {
		d.leave()
		return
	}
	for d.broken == "" {
		if d.peek() != '"' {
			d.fail("a name is missing")
			return
		}
		d.scanString()
		if !d.expect(':') {
			return
		}
		d.skip()
		if d.peek() == '}' {
			d.leave()
			return
		}
		d.expect(',')
	}
}

func (d *decoder) skipArray() {
	if !d.enter() {
		return
	}
	if d.peek() == ']' {
		d.leave()
		return
	}
	for d.broken == "" {
		d.skip()
		if d.peek() == ']' {
			d.leave()
			return
		}
		d.expect(',')
	}
}

// scanNumber checks a number by JSON's grammar and returns its text.
func (d *decoder) scanNumber() []byte {
	start := d.pos
	if d.data[d.pos] == '-' {
		d.pos++
	}
	first := d.pos
	n := d.digits()
	ok := n > 0 && (n == 1 || d.data[first] != '0')
	if ok && d.at('.') {
		d.pos++
		ok = d.digits() > 0
	}
	if ok && (d.at('e') || d.at('E')) {
		d.pos++
		if d.at('+') || d.at('-') {
			d.pos++
		}
		ok = d.digits() > 0
	}
	if !ok {
		d.fail("no number")
		return nil
	}
	return d.data[start:d.pos]
}

func (d *decoder) at(c byte) bool { return d.pos < len(d.data) && d.data[d.pos] == c }

func (d *decoder) digits() int {
	start := d.pos
	for d.pos < len(d.data) && '0' <= d.data[d.pos] && d.data[d.pos] <= '9' {
		d.pos++
	}
	return d.pos - start
}

// stringToken is a string of the line, checked but not yet decoded.
type stringToken struct {
	raw     []byte // between the quotes
	escaped bool   // raw holds a backslash
	size    int    // bytes when decoded
}

// scanString checks the string that starts at the current quote.
func (d *decoder) scanString() stringToken {
	b, start := d.data, d.pos+1
	i, less := start, 0
	for {
		i = skipPlain(b, i)
		if i >= len(b) {
			d.fail("a string does not end")
			return stringToken{}
		}
		switch c := b[i]; {
		case c == '"':
			d.pos = i + 1
			return stringToken{raw: b[start:i], escaped: less > 0, size: i - start - less}
		case c == '\\':
			if i+1 < len(b) && shortEscape[b[i+1]] != 0 {
				less++
				i += 2
				continue
			}
			n, size, fault := checkEscape(b[i:])
			if fault != "" {
				d.fail(fault)
				return stringToken{}
			}
			less += n - size
			i += n
		case c < 0x20:
			d.fail("a raw control character in a string")
			return stringToken{}
		default:
			if i = skipRunes(b, i); i < 0 {
				d.fail("invalid UTF-8")
				return stringToken{}
			}
		}
	}
}

// skipRunes returns the first index behind i that is ASCII, or -1 when what
// lies between is no UTF-8.
func skipRunes(b []byte, i int) int {
	for i < len(b) && b[i] >= utf8.RuneSelf {
		_, n := utf8.DecodeRune(b[i:])
		if n == 1 {
			return -1
		}
		i += n
	}
	return i
}

// Eight bytes at a time: one bit a byte.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// skipPlain returns the first index at or after i whose byte is a quote, a
// backslash, a control character or no ASCII; len(b) when there is none.
func skipPlain(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(b)
}

// special sets the high bit of each byte that skipPlain looks for; of the
// bits above the lowest set one only the lowest is to be trusted.
func special(x uint64) uint64 {
	return (x | (x - 0x20*lowBits) | ((x ^ '"'*lowBits) - lowBits) | ((x ^ '\\'*lowBits) - lowBits)) & highBits
}
