package adapter

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/controld/controld/sandbox"
)

// countedReader ends where the verdict says that the bytes end: an end of
// file on the wire is not needed, and alone it is no end.
type countedReader struct {
	conn net.Conn

	mu    sync.Mutex
	read  int64
	total sandbox.Optional[int64]
}

// end names the count and wakes a Read that waits for more.
func (c *countedReader) end(total int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total = sandbox.Some(total)
	c.conn.SetReadDeadline(time.Unix(1, 0))
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// left returns how many bytes are to come, once that is known.
func (c *countedReader) left() sandbox.Optional[int64] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.total.Known {
		return c.total
	}
	c.conn.SetReadDeadline(time.Time{})
	return sandbox.Some(c.total.Value - c.read)
}

// Read implements io.Reader.
func (c *countedReader) Read(p []byte) (int, error) {
	for {
		left := c.left()
		if left.Known {
			if left.Value <= 0 {
				return 0, io.EOF
			}
			p = p[:min(int64(len(p)), left.Value)]
		}
		n, err := c.conn.Read(p)
		c.mu.Lock()
		c.read += int64(n)
		c.mu.Unlock()
		if n == 0 && isTimeout(err) {
			continue // woken by end, or by a deadline that end has set late
		}
		return n, err
	}
}
