package sandbox

import (
	"io"
	"sync"
)

// ContentSource returns a source of what is in memory already: c.Data, out of
// a file of c.Size bytes. Close lets the data go.
func ContentSource(c FileContent) Source {
	return &contentSource{size: c.Size, length: int64(len(c.Data)), etag: c.ETag, data: c.Data}
}

type contentSource struct {
	size, length int64
	etag         string

	mu     sync.Mutex
	data   []byte // what has not been read
	closed bool
}

// Size implements [Source].
func (c *contentSource) Size() (int64, bool) { return c.size, true }

// Length implements [Source].
func (c *contentSource) Length() (int64, bool) { return c.length, true }

// ETag implements [Source].
func (c *contentSource) ETag() string { return c.etag }

// Reader implements [Source].
func (c *contentSource) Reader() io.Reader { return c }

// Read implements io.Reader.
func (c *contentSource) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, io.ErrClosedPipe
	}
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data)
	c.data = c.data[n:]
	return n, nil
}

// Finish implements [Source].
func (c *contentSource) Finish(int64) (ReadVerdict, error) { return ReadVerdict{}, nil }

// Close implements [Source].
func (c *contentSource) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data, c.closed = nil, true
	return nil
}
