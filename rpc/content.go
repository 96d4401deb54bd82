package rpc

import "encoding/base64"

// content writes a Content: text when b is valid UTF-8 and its JSON string is
// no longer than its base64, else base64.
func (e encoder) content(b []byte) {
	coded := base64.StdEncoding.EncodedLen(len(b))
	n, text := measure(b, coded)
	if text {
		e.raw(`{"text":"`)
	} else {
		e.raw(`{"base64":"`)
		n = coded
	}
	if n > inlineContent {
		e.m.refer(span{data: b, text: text, clean: text && n == len(b), size: n})
	} else if text {
		e.m.buf = appendEscaped(e.m.buf, b)
	} else {
		e.m.buf = base64.StdEncoding.AppendEncode(e.m.buf, b)
	}
	e.raw(`"}`)
}

// inlineContent is the longest encoded content that is copied into its
// message at once.
const inlineContent = 8 << 10

// span is a content that is encoded while its message is sent.
type span struct {
	data  []byte
	text  bool
	clean bool // text without escapes
	size  int  // when encoded
	at    int  // where in the message's buffer it stands
}

// appendPiece appends as much of the content from data[from:] as fits into
// dst's capacity and returns where to go on.
func (s *span) appendPiece(dst []byte, from int) ([]byte, int) {
	room, left := cap(dst)-len(dst), len(s.data)-from
	switch {
	case s.clean:
		n := min(room, left)
		return append(dst, s.data[from:from+n]...), from + n
	case s.text:
		dst, n := appendEscapedPiece(dst, s.data[from:])
		return dst, from + n
	}
	n := min(room/4*3, left)
	return base64.StdEncoding.AppendEncode(dst, s.data[from:from+n]), from + n
}

// appendEscapedPiece is appendEscaped for as much of s as surely fits into the
// capacity of dst; it returns how much that was.
func appendEscapedPiece(dst, s []byte) ([]byte, int) {
	i := 0
	for i < len(s) {
		room := cap(dst) - len(dst)
		j := skipClean(s[:min(len(s), i+room)], i)
		dst = append(dst, s[i:j]...)
		if i = j; i == len(s) || cap(dst)-len(dst) < longestEscape {
			break
		}
		dst = appendEscape(dst, s[i])
		i++
	}
	return dst, i
}
