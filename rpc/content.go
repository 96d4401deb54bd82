package rpc

import (
	"encoding/base64"
	"encoding/binary"
	"math/bits"
)

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
	out, n, i := dst[:cap(dst)], len(dst), 0
	for i < len(s) {
		took, made := escapeBlocks(out[n:], s[i:])
		i, n = i+took, n+made
		took, made = escapeSteps(out[n:], s[i:min(len(s), i+blockSize)])
		if took == 0 {
			break
		}
		i, n = i+took, n+made
	}
	return out[:n], i
}

// escapeSteps escapes what blocks cannot: their end, and bytes that need more
// than two bytes.
func escapeSteps(out, s []byte) (took, made int) {
	i, n := 0, 0
	for i < len(s) && n+8 <= len(out) {
		if i+8 <= len(s) {
			// Eight bytes are stored whatever they are; those behind the
			// first that needs an escape are written over.
			x := binary.LittleEndian.Uint64(s[i:])
			binary.LittleEndian.PutUint64(out[n:], x)
			m := special(x) &^ (x & highBits)
			if m == 0 {
				i, n = i+8, n+8
				continue
			}
			k := bits.TrailingZeros64(m) / 8
			i, n = i+k, n+k
		}
		if c := s[i]; escapes[c] == 1 {
			out[n] = c
			n++
		} else if n+longestEscape > len(out) {
			break
		} else {
			n = len(appendEscape(out[:n], c))
		}
		i++
	}
	return i, n
}
