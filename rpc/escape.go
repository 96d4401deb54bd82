package rpc

import (
	"unicode/utf16"
	"unicode/utf8"
)

// checkEscape checks the escape b starts with and returns its length and how
// many bytes it decodes to.
func checkEscape(b []byte) (n, size int, fault string) {
	if len(b) < 2 {
		return 0, 0, "a string does not end"
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, 1, ""
	case 'u':
		r, n := unicodeEscape(b)
		switch {
		case n == 0:
			return 0, 0, "a bad escape"
		case r < 0:
			return 0, 0, "a lone surrogate"
		}
		return n, utf8.RuneLen(r), ""
	}
	return 0, 0, "a bad escape"
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

// appendUnescaped appends the value of a checked string token.
func appendUnescaped(dst []byte, t stringToken) []byte {
	raw := t.raw
	for t.escaped {
		i := indexBackslash(raw)
		dst = append(dst, raw[:i]...)
		raw = raw[i:]
		if len(raw) == 0 {
			return dst
		}
		if raw[1] == 'u' {
			r, n := unicodeEscape(raw)
			dst = utf8.AppendRune(dst, r)
			raw = raw[n:]
			continue
		}
		dst = append(dst, unescapeByte(raw[1]))
		raw = raw[2:]
	}
	return append(dst, raw...)
}

func unescapeByte(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}
