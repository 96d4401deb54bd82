package rpc

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// encoder writes JSON into a message. Long contents are not copied: the
// message refers to them and they are encoded while it is sent.
type encoder struct{ m *Message }

func (e encoder) raw(s string) { e.m.buf = append(e.m.buf, s...) }

func (e encoder) bytes(b []byte) { e.m.buf = append(e.m.buf, b...) }

// field begins a field of the object that is being written; begin it with
// raw("{") and end it with raw("}").
func (e encoder) field(name string) {
	b := e.m.buf
	if n := len(b); n > 0 && b[n-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	e.m.buf = append(b, '"', ':')
}

func (e encoder) integer(n int64) { e.m.buf = strconv.AppendInt(e.m.buf, n, 10) }

func (e encoder) boolean(v bool) { e.m.buf = strconv.AppendBool(e.m.buf, v) }

// str writes a string; what is no UTF-8 in it is replaced, so it is for
// words, not for names and contents.
func (e encoder) str(s string) {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	b := append(e.m.buf, '"')
	if plainString(s) {
		b = append(b, s...)
	} else {
		b = appendEscaped(b, []byte(s))
	}
	e.m.buf = append(b, '"')
}

func plainString(s string) bool {
	for i := 0; i < len(s); i++ {
		if escapes[s[i]] != 1 {
			return false
		}
	}
	return true
}

// name writes a Name.
func (e encoder) name(s string) {
	if utf8.ValidString(s) {
		e.str(s)
		return
	}
	b := append(e.m.buf, `{"base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, []byte(s))
	e.m.buf = append(b, '"', '}')
}

// seconds writes a duration, exactly.
func (e encoder) seconds(d time.Duration) {
	b := strconv.AppendInt(e.m.buf, int64(d/time.Second), 10)
	if frac := int64(d % time.Second); frac != 0 {
		digits := strconv.AppendInt(nil, frac+int64(time.Second), 10)
		b = append(b, '.')
		b = append(b, strings.TrimRight(string(digits[1:]), "0")...)
	}
	e.m.buf = b
}

// optional fields: written only where they say something.

func (e encoder) nameField(field, s string) {
	if s != "" {
		e.field(field)
		e.name(s)
	}
}

func (e encoder) strField(field, s string) {
	if s != "" {
		e.field(field)
		e.str(s)
	}
}

func (e encoder) trueField(field string, v bool) {
	if v {
		e.field(field)
		e.boolean(true)
	}
}

func (e encoder) countField(field string, n int64) {
	if n != 0 {
		e.field(field)
		e.integer(n)
	}
}

// measure returns how long the JSON string of b would be without its quotes,
// and false when b is no UTF-8 or the string would be longer than most.
func measure(b []byte, most int) (int, bool) {
	if !utf8.Valid(b) {
		return 0, false
	}
	n := len(b)
	for len(b) > 0 && n <= most {
		// Several looks at a piece that stays in the nearest cache.
		piece := b[:min(len(b), 16<<10)]
		n += growth(piece)
		b = b[len(piece):]
	}
	return n, n <= most
}

// growth returns how much longer than b its JSON string is, without quotes.
func growth(b []byte) int {
	short := 0
	for _, c := range []byte("\n\t\r\b\f") {
		short += bytes.Count(b, []byte{c})
	}
	return short + (longestEscape-1)*(controls(b)-short) + bytes.Count(b, []byte{'"'}) + bytes.Count(b, []byte{'\\'})
}

// controls counts the control characters of b.
func controls(b []byte) int {
	n, i := 0, 0
	for ; i+blockSize <= len(b); i += blockSize {
		w := (*[blockSize]byte)(b[i:])
		others := uint64(0) // a count in each byte
		for j := 0; j < blockSize; j += 8 {
			x := binary.LittleEndian.Uint64(w[j:])
			others += (x&^highBits + (0x80-0x20)*lowBits | x) >> 7 & lowBits
		}
		n += blockSize - int(others*lowBits>>56)
	}
	for _, c := range b[i:] {
		if c < 0x20 {
			n++
		}
	}
	return n
}

// escapes holds the length of each byte in a JSON string, beyond ASCII too.
var escapes = func() (table [256]byte) {
	for c := range table {
		table[c] = byte(escapedLen(byte(c)))
	}
	return table
}()

// escapedLen is the length of a byte in a JSON string.
func escapedLen(c byte) int {
	switch c {
	case '"', '\\', '\n', '\r', '\t', '\b', '\f':
		return 2
	}
	if c < 0x20 {
		return 6
	}
	return 1
}

// skipClean is skipPlain for what needs no escape: it does not stop at bytes
// beyond ASCII.
func skipClean(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		if special(x)&^(x&highBits) == 0 {
			continue
		}
		for j := i; j < i+8; j++ {
			if escapes[b[j]] != 1 {
				return j
			}
		}
	}
	for ; i < len(b); i++ {
		if escapes[b[i]] != 1 {
			return i
		}
	}
	return len(b)
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends valid UTF-8 as the inside of a JSON string, with no
// more escapes than JSON asks for.
func appendEscaped(dst, s []byte) []byte {
	for i := 0; ; i++ {
		j := skipClean(s, i)
		dst = append(dst, s[i:j]...)
		if i = j; i == len(s) {
			return dst
		}
		dst = appendEscape(dst, s[i])
	}
}

// longestEscape is the length of \u0000.
const longestEscape = 6

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
