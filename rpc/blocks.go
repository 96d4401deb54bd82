package rpc

import (
	"encoding/binary"
	"math/bits"
)

// Text as of source code has an escape every ten bytes, at places that no
// processor foresees: a branch on each word would be wrong most of the time.
// So blocks of text are looked over first, without a branch, and what was
// found is then walked, a bit a byte. Runs between two finds are moved in
// pieces of fixed size, past their end: what is too much is written over.

const (
	blockSize = 64
	// escapeRoom and unescapeRoom are what a block's output may touch.
	escapeRoom   = 5 * blockSize
	unescapeRoom = 2 * blockSize
)

// markBlock has a bit for each byte that is a quote, a backslash or a control
// character; with beyond all ones, or each of its bytes 0x80, for each that is
// no ASCII as well.
func markBlock(b *[blockSize]byte, beyond uint64) (found uint64) {
	for i := 0; i < blockSize; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		y := x &^ highBits
		// A quote is 0x22: with its second bit turned over, all below 0x21
		// are quotes and control characters.
		plain := ((y ^ 2*lowBits) + (0x80-0x21)*lowBits) & ((y ^ '\\'*lowBits) + 0x7f*lowBits)
		word := (^plain&^x | x&beyond) & highBits
		// The product gathers the high bits of all bytes in its highest byte.
		found = found>>8 | word>>7*0x0102040810204080&(0xff<<56)
	}
	return found
}

// escapePairs holds the escapes of two bytes, the backslash in the low one.
var escapePairs = func() (table [256]uint16) {
	for c := range table {
		if e := appendEscape(nil, byte(c)); len(e) == 2 {
			table[c] = binary.LittleEndian.Uint16(e)
		}
	}
	return table
}()

// escapeBlocks is appendEscaped on whole blocks, up to one that needs more
// than escapes of two bytes. It returns how much it took and made.
func escapeBlocks(out, s []byte) (took, made int) {
	for took+2*blockSize <= len(s) && made+escapeRoom <= len(out) {
		w, o := (*[2 * blockSize]byte)(s[took:]), (*[escapeRoom]byte)(out[made:])
		from, p := uint(0), uint(0)
		for m := markBlock((*[blockSize]byte)(w[:]), 0); m != 0; m &= m - 1 {
			k := uint(bits.TrailingZeros64(m)) % blockSize
			e := escapePairs[w[k]]
			if e == 0 {
				return took, made
			}
			q := p % 256 // it is less; so the compiler knows, too
			moveRun((*[blockSize]byte)(o[q:]), (*[blockSize]byte)(w[from%blockSize:]), k-from)
			p += k - from
			q = p % 256
			o[q], o[q+1] = byte(e), byte(e>>8)
			p, from = p+2, k+1
		}
		if from < blockSize {
			moveRun((*[blockSize]byte)(o[p%256:]), (*[blockSize]byte)(w[from%blockSize:]), blockSize-from)
			p += blockSize - from
		}
		took, made = took+blockSize, made+int(p)
	}
	return took, made
}

// unescapeBlocks decodes the inside of a JSON string up to its end or to
// anything but ASCII and short escapes, or until less than two blocks are
// left. It returns how much it took and made.
func unescapeBlocks(out, s []byte) (took, made int) {
	for took+2*blockSize <= len(s) && made+unescapeRoom <= len(out) {
		w, o := (*[2 * blockSize]byte)(s[took:]), (*[unescapeRoom]byte)(out[made:])
		from, p := uint(0), uint(0)
		for m := markBlock((*[blockSize]byte)(w[:]), highBits); m != 0; {
			k := uint(bits.TrailingZeros64(m)) % blockSize
			moveRun((*[blockSize]byte)(o[p%blockSize:]), (*[blockSize]byte)(w[from%blockSize:]), k-from)
			p += k - from
			c := shortEscape[w[k+1]]
			if w[k] != '\\' || c == 0 {
				return took + int(k), made + int(p)
			}
			o[p%blockSize] = c
			p, from = p+1, k+2
			m &^= 3 << k // the escaped one may be a quote or a backslash
		}
		if from < blockSize {
			moveRun((*[blockSize]byte)(o[p%blockSize:]), (*[blockSize]byte)(w[from%blockSize:]), blockSize-from)
			p, from = p+blockSize-from, blockSize
		}
		took, made = took+int(from), made+int(p)
	}
	return took, made
}

// moveRun moves n bytes, and as many more as it is quicker to move than not.
func moveRun(dst, src *[blockSize]byte, n uint) {
	*(*[16]byte)(dst[:]) = *(*[16]byte)(src[:])
	if n > 16 {
		*(*[16]byte)(dst[16:]) = *(*[16]byte)(src[16:])
		if n > 32 {
			*(*[32]byte)(dst[32:]) = *(*[32]byte)(src[32:])
		}
	}
}
