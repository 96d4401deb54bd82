//go:build linux

package local

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// headTail keeps the first and the last half of what is written to it and
// counts what lies between. It holds no more than arrived, and no more than
// grow, where set, allows.
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
}

// headMax is the larger half of an odd limit.
func (b *headTail) headMax() int64 { return b.limit - b.limit/2 }

func (b *headTail) add(p []byte) {
	b.total += int64(len(p))
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

// bytes returns what was kept and how much was not.
func (b *headTail) bytes() ([]byte, int64) {
	out := b.head
	if len(b.tail) > 0 {
		out = make([]byte, 0, len(b.head)+len(b.tail))
		out = append(out, b.head...)
		out = append(out, b.tail[b.next:]...)
		out = append(out, b.tail[:b.next]...)
	}
	return out, b.total - int64(len(out))
}

// collector reads one output of a command until its end, and keeps what came
// before it was told to drop.
type collector struct {
	pipe *os.File
	done chan struct{} // closed at the end of the output

	mu       sync.Mutex
	kept     headTail
	dropping bool
	target   int64 // of kept.total
	reached  chan struct{}
}

// readBuffers lends the buffers of collectors.
type readBuffers struct{ pool sync.Pool }

func (r *readBuffers) get() *[]byte {
	if b, ok := r.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 64<<10)
	return &b
}

func newCollector(pipe *os.File, limit int64, grow func(int) bool) *collector {
	return &collector{pipe: pipe, done: make(chan struct{}), kept: headTail{limit: limit, grow: grow}}
}

// run reads until the end.
func (c *collector) run(buffers *readBuffers) {
	defer close(c.done)
	defer c.pipe.Close()
	raw, err := c.pipe.SyscallConn()
	if err != nil {
		return
	}
	buf := buffers.get()
	defer buffers.pool.Put(buf)
	for more := true; more; {
		err = raw.Read(func(fd uintptr) bool {
			var again bool
			more, again = c.take(int(fd), *buf)
			return !again
		})
		if err != nil {
			return
		}
	}
}

// take reads once. Reading and counting are one step under the lock, so that
// what the pipe still holds and what was taken from it always add up.
func (c *collector) take(fd int, buf []byte) (more, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := unix.Read(fd, buf)
	if err == syscall.EAGAIN {
		return true, true
	}
	if err == syscall.EINTR {
		return true, false
	}
	if n <= 0 {
		return false, false
	}
	if c.dropping {
		return true, false
	}
	c.kept.add(buf[:n])
	if c.reached != nil && c.kept.total >= c.target {
		close(c.reached)
		c.reached = nil
	}
	return true, false
}

// drained returns a channel that is closed when all that is in the pipe now
// has been taken.
func (c *collector) drained() <-chan struct{} {
	ch := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	queued := 0
	if raw, err := c.pipe.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { queued, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	if queued <= 0 {
		close(ch)
		return ch
	}
	c.target, c.reached = c.kept.total+int64(queued), ch
	return ch
}

// finish returns what was kept; what comes later is dropped.
func (c *collector) finish() ([]byte, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropping = true
	out, omitted := c.kept.bytes()
	c.kept = headTail{}
	return out, omitted
}
