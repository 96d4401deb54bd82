package rpc

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// shortEscape holds the bytes that stand for another behind a backslash.
var shortEscape = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// checkEscape checks the escape b starts with and returns its length and how
// many bytes it decodes to.
func checkEscape(b []byte) (n, size int, fault string) {
	switch {
	case len(b) < 2:
		return 0, 0, "a string does not end"
	case shortEscape[b[1]] != 0:
		return 2, 1, ""
	case b[1] != 'u':
		return 0, 0, "a bad escape"
	}
	r, n := unicodeEscape(b)
	switch {
	case n == 0:
		return 0, 0, "a bad escape"
	case r < 0:
		return 0, 0, "a lone surrogate"
	}
	return n, utf8.RuneLen(r), ""
}

// unicodeEscape decodes \uXXXX, or a pair of them, at the start of b. A lone
// surrogate is -1; a length of zero means that it is no such escape.
func unicodeEscape(b []byte) (rune, int) {
	r, ok := hex4(b)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		low, ok := hex4(b[6:])
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return pair, 12
		}
	}
	return -1, 6
}

// hex4 reads the digits of \uXXXX.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape writes the value of a checked string token to dst, which has room
// for exactly that.
func unescape(dst []byte, t stringToken) {
	raw := t.raw
	for i := 0; ; {
		n := copyPlain(dst, raw[i:])
		dst, i = dst[n:], i+n
		if i == len(raw) {
			return
		}
		if raw[i+1] != 'u' {
			dst[0] = shortEscape[raw[i+1]]
			dst, i = dst[1:], i+2
			continue
		}
		r, width := unicodeEscape(raw[i:])
		dst, i = dst[utf8.EncodeRune(dst, r):], i+width
	}
}

// copyPlain copies up to the first backslash and returns how much that was.
func copyPlain(dst, src []byte) int {
	i := 0
	for ; i+8 <= len(src) && i+8 <= len(dst); i += 8 {
		x := binary.LittleEndian.Uint64(src[i:])
		binary.LittleEndian.PutUint64(dst[i:], x)
		x ^= '\\' * lowBits
		if m := (x - lowBits) &^ x & highBits; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(src) && src[i] != '\\'; i++ {
		dst[i] = src[i]
	}
	return i
}
