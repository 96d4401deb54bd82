package rpc

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
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
	extra := 0
	for i := 0; i < len(b); {
		if i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			if n, ok := escapesIn(x); ok {
				extra += n
				i += 8
				continue
			}
		}
		if c := b[i]; c < utf8.RuneSelf {
			extra += int(escapes[c]) - 1
			i++
		} else if i = skipRunes(b, i); i < 0 {
			return 0, false
		}
		if len(b)+extra > most {
			return 0, false
		}
	}
	return len(b) + extra, len(b)+extra <= most
}

// escapesIn returns how many bytes eight bytes of ASCII grow by; false when
// they are no ASCII, or hold a control character without a short escape.
func escapesIn(x uint64) (int, bool) {
	if x&highBits != 0 {
		return 0, false
	}
	// Exact for bytes below 0x80: the high bit is set where the byte is less
	// than 0x20, is a quote, is a backslash.
	control := ^(x + (0x80-0x20)*lowBits) & highBits
	found := control | zeroes(x^'"'*lowBits) | zeroes(x^'\\'*lowBits)
	if control != 0 {
		// 8 to 13 but 11 have a short escape.
		short := (x + (0x80-8)*lowBits) &^ (x + (0x80-14)*lowBits) &^ zeroes(x^11*lowBits)
		if control&^short != 0 {
			return 0, false
		}
	}
	return bits.OnesCount64(found), true
}

// zeroes sets the high bit of each byte that is zero; all are below 0x80.
func zeroes(x uint64) uint64 { return ^(x + 0x7f*lowBits) & highBits }

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
