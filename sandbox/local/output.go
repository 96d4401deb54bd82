//go:build linux

package local

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

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
type readBuffers struct {
	pool sync.Pool
	// taking has long outputs be copied out of their mappings one by one, so
	// that never more than one is there twice.
	taking sync.Mutex
}

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
func (c *collector) finish(buffers *readBuffers) ([]byte, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropping = true
	if c.kept.mapped != nil {
		buffers.taking.Lock()
		defer buffers.taking.Unlock()
	}
	return c.kept.take()
}

// discard drops what was kept and what comes later.
func (c *collector) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropping = true
	c.kept.drop()
}
