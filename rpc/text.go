package rpc

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// text checks the string at the current quote and decodes it in the same
// pass, which for a long content is half the work of one behind the other.
func (d *decoder) text() []byte {
	b, start := d.data, d.pos+1
	i := start
	for {
		i = skipPlain(b, i)
		if i < len(b) && b[i] >= utf8.RuneSelf {
			if i = skipRunes(b, i); i >= 0 {
				continue
			}
			d.fail("invalid UTF-8")
			return nil
		}
		break
	}
	if i < len(b) && b[i] == '"' {
		d.pos = i + 1
		return append(make([]byte, 0, i-start), b[start:i]...)
	}
	out := make([]byte, len(b)-start)
	n, end := d.unescapeText(out, start, i)
	if end < 0 {
		return nil
	}
	d.pos = end
	if len(out)-n > n/4 {
		return append(make([]byte, 0, n), out[:n]...)
	}
	return out[:n:n]
}

// unescapeText decodes the string that starts at start into out, which is as
// long as the rest of the line; up to i it is plain. It returns how many bytes
// it made and where the string ends, or -1.
func (d *decoder) unescapeText(out []byte, start, i int) (n, end int) {
	b := d.data
	n = copy(out, b[start:i])
	for ended := false; !ended; {
		took, made := unescapeBlocks(out[n:], b[i:])
		i, n = i+took, n+made
		i, n, ended = d.unescapeSteps(out, i, n)
	}
	return n, i
}

// unescapeSteps goes past what unescapeBlocks stopped at, and some way on:
// where one such thing is there are more. At the end of the string it is true
// and returns where that is, -1 for a fault.
func (d *decoder) unescapeSteps(out []byte, i, n int) (int, int, bool) {
	b := d.data
	for until := i + blockSize; i < until; {
		for i+8 <= len(b) {
			// What was decoded is never longer than what was read, so that
			// eight bytes have room.
			x := binary.LittleEndian.Uint64(b[i:])
			binary.LittleEndian.PutUint64(out[n:], x)
			m := special(x)
			if m == 0 {
				i, n = i+8, n+8
				continue
			}
			k := bits.TrailingZeros64(m) / 8
			i, n = i+k, n+k
			break
		}
		if i >= len(b) {
			d.fail("a string does not end")
			return -1, 0, true
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, n, true
		case c == '\\':
			took, made := d.escapeAt(out[n:], b[i:])
			if took == 0 {
				return -1, 0, true
			}
			i, n = i+took, n+made
		case c < 0x20:
			d.fail("a raw control character in a string")
			return -1, 0, true
		case c < utf8.RuneSelf:
			out[n] = c
			i, n = i+1, n+1
		default:
			j := skipRunes(b, i)
			if j < 0 {
				d.fail("invalid UTF-8")
				return -1, 0, true
			}
			n += copy(out[n:], b[i:j])
			i = j
		}
	}
	return i, n, false
}

// escapeAt decodes the escape at the start of b and returns how long it is and
// how many bytes it made; zero when it is none.
func (d *decoder) escapeAt(out, b []byte) (took, made int) {
	if len(b) >= 2 && shortEscape[b[1]] != 0 {
		out[0] = shortEscape[b[1]]
		return 2, 1
	}
	took, made, fault := checkEscape(b)
	if fault != "" {
		d.fail(fault)
		return 0, 0
	}
	r, _ := unicodeEscape(b)
	utf8.EncodeRune(out, r)
	return took, made
}
