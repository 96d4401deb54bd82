//go:build linux

package local

import (
	"slices"

	"golang.org/x/sys/unix"
)

// headTail keeps the first and the last half of what is written to it and
// counts what lies between. It holds no more than arrived, and no more than
// grow, where set, allows. Its end is take or drop.
type headTail struct {
	limit int64
	grow  func(n int) bool
	// full is set when grow has said no: then what is held is all there is
	// room for.
	full  bool
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	total int64
	// mapped is where both halves are once there is much.
	mapped     []byte
	unmappable bool
}

// longOutput is from where on what is kept lies in a mapping of its own: what is
// given back is then gone at once, and growing copies nothing.
const longOutput = 64 << 10

// headMax is the larger half of an odd limit.
func (b *headTail) headMax() int64 { return b.limit - b.limit/2 }

func (b *headTail) add(p []byte) {
	b.total += int64(len(p))
	if b.total > longOutput && b.limit > 2*longOutput && b.mapped == nil && !b.full && !b.unmappable {
		b.remap()
	}
	if room := b.headMax() - int64(len(b.head)); room > 0 {
		n := min(room, int64(len(p)))
		b.head = b.extend(b.head, p[:n])
		p = p[n:]
	}
	if size := int(b.limit / 2); len(p) > size {
		p = p[len(p)-size:]
	}
	if room := int(b.limit/2) - len(b.tail); room > 0 && !b.full {
		n := min(room, len(p))
		before := len(b.tail)
		b.tail = b.extend(b.tail, p[:n])
		p = p[len(b.tail)-before:]
	}
	b.wrap(p)
}

// extend appends p to one half, unless there is no room for it.
func (b *headTail) extend(half, p []byte) []byte {
	if len(p) == 0 || b.full {
		return half
	}
	if b.grow != nil && !b.grow(len(p)) {
		b.full = true
		return half
	}
	return append(half, p...)
}

// remap moves the head into a mapping that has room for both halves, of which
// the system gives what is written to. Where it cannot, nothing changes. There
// is no tail yet: a half is longer than what is not long.
func (b *headTail) remap() {
	m, err := unix.Mmap(-1, 0, int(b.limit), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		b.unmappable = true
		return
	}
	half := b.headMax()
	b.head = append(m[:0:half], b.head...)
	b.tail = m[half:half:b.limit]
	b.mapped = m
}

// wrap writes p over what is oldest in the ring.
func (b *headTail) wrap(p []byte) {
	size := len(b.tail)
	if len(p) > size {
		p = p[len(p)-size:]
	}
	for len(p) > 0 {
		n := copy(b.tail[b.next:], p)
		b.next = (b.next + n) % size
		p = p[n:]
	}
}

// take returns what was kept and how much was not, and lets go of the rest.
func (b *headTail) take() ([]byte, int64) {
	out := b.head
	if b.mapped != nil || len(b.tail) > 0 {
		out = slices.Concat(b.head, b.tail[b.next:], b.tail[:b.next])
	}
	omitted := b.total - int64(len(out))
	b.drop()
	return out, omitted
}

// drop lets go of all that was kept.
func (b *headTail) drop() {
	if b.mapped != nil {
		unix.Munmap(b.mapped)
	}
	*b = headTail{}
}
