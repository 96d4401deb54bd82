package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// ReadStream is a file being read. Read returns io.EOF only when the bytes
// are complete and verified; any other error says how far it came. It is an
// io.WriterTo that keeps bytes in the kernel between files and sockets.
// A stream is used by one goroutine at a time; Close may be called from any.
type ReadStream struct {
	src     Source
	digest  hash.Hash // of what was received, nil unless asked for
	left    Optional[int64]
	sent    atomic.Int64
	verdict ReadVerdict
	ended   bool
	err     error // what every further read answers
}

// OpenStream implements [API.ReadFileStream] on a backend's OpenRead.
func OpenStream(ctx context.Context, b Backend, path string, opts ReadOptions) (*ReadStream, error) {
	src, err := b.OpenRead(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	return NewReadStream(src, opts), nil
}

// NewReadStream returns the stream over src, which it closes.
func NewReadStream(src Source, opts ReadOptions) *ReadStream {
	s := &ReadStream{src: src}
	s.left.Value, s.left.Known = src.Length()
	if opts.Digest {
		s.digest = sha256.New()
	}
	return s
}

// Size is the whole file's size in bytes; false where it is not known.
func (s *ReadStream) Size() (int64, bool) { return s.src.Size() }

// Length is how many bytes the stream will yield; false where not known.
func (s *ReadStream) Length() (int64, bool) { return s.src.Length() }

// ETag names the version being read.
func (s *ReadStream) ETag() string { return s.src.ETag() }

// Sent is how many bytes have been read so far; any goroutine may ask.
func (s *ReadStream) Sent() int64 { return s.sent.Load() }

// Verdict is what is known of the bytes, once Read has returned io.EOF.
func (s *ReadStream) Verdict() ReadVerdict { return s.verdict }

// Close ends the stream and releases everything. It may be called twice.
func (s *ReadStream) Close() error { return s.src.Close() }

// Read implements io.Reader.
func (s *ReadStream) Read(p []byte) (int, error) {
	if s.ended {
		return 0, s.err
	}
	if s.left.Known {
		if s.left.Value == 0 {
			return 0, s.finish(nil)
		}
		p = p[:min(int64(len(p)), s.left.Value)]
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.src.Reader().Read(p)
	if s.digest != nil {
		s.digest.Write(p[:n])
	}
	s.took(int64(n))
	if err != nil {
		return n, s.finish(err)
	}
	return n, nil
}

// WriteTo implements io.WriterTo. It returns nil only after a whole stream.
func (s *ReadStream) WriteTo(w io.Writer) (int64, error) {
	if s.digest != nil {
		return copyPlain(w, readerOnly{s})
	}
	var total int64
	var p Pieces
	for !s.ended {
		want := p.Next()
		if s.left.Known {
			want = min(want, s.left.Value)
		}
		if want == 0 {
			s.finish(nil)
			break
		}
		n, err := copyUpTo(w, s.src.Reader(), want)
		total += n
		s.took(n)
		if werr := writersOwn(err); werr != nil {
			return total, werr
		}
		if err != nil || n < want {
			s.finish(err)
		}
	}
	if s.err == io.EOF {
		return total, nil
	}
	return total, s.err
}

// writersOwn returns the error that is the writer's and not the source's. What
// the kernel copies does not say whose it was; a full disk and a reader that
// has gone are never a source's.
func writersOwn(err error) error {
	var we *writeError
	if errors.As(err, &we) {
		return we.err
	}
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EPIPE} {
		if errors.Is(err, full) {
			return err
		}
	}
	return nil
}

func (s *ReadStream) took(n int64) {
	s.sent.Add(n)
	if s.left.Known {
		s.left.Value -= n
	}
}

// finish asks for the verdict after the last byte or the first error and
// remembers what every further read is told.
func (s *ReadStream) finish(cause error) error {
	s.ended = true
	sent := s.sent.Load()
	verdict, err := s.src.Finish(sent)
	switch {
	case err != nil:
		s.err = withBytes(err, sent)
	case cause != nil && cause != io.EOF:
		s.err = withBytes(AsError("read", "", cause), sent)
	case s.left.Known && s.left.Value > 0:
		s.err = &Error{Kind: KindTruncated, Op: "read", Bytes: Some(sent), Expected: Some(sent + s.left.Value)}
	case s.digest != nil && verdict.SHA256 != hex.EncodeToString(s.digest.Sum(nil)):
		s.err = &Error{Kind: KindCorrupt, Op: "read", Message: "the digest of what arrived differs", Bytes: Some(sent)}
	default:
		s.verdict, s.err = verdict, io.EOF
	}
	return s.err
}

// withBytes says in an error how far the stream came: what has arrived here,
// which may be less than what the far end has sent.
func withBytes(err error, sent int64) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	with := *e
	with.Bytes = Some(sent)
	return &with
}

// WriteStream implements [API.WriteFileStream] on a backend's OpenWrite.
//
// When ctx ends while r blocks, WriteStream returns without waiting for that
// last Read of r, whose bytes are dropped.
func WriteStream(ctx context.Context, b Backend, path string, r io.Reader, opts WriteOptions) (WriteInfo, error) {
	sink, err := b.OpenWrite(ctx, path, opts)
	if err != nil {
		return WriteInfo{}, err
	}
	var digest hash.Hash
	if opts.Digest {
		digest = sha256.New()
		r = io.TeeReader(readerOnly{r}, digest)
	}
	n, err := fillSink(ctx, sink, r)
	if err != nil {
		return WriteInfo{}, sink.Abort(err)
	}
	c := Commit{Bytes: n}
	if digest != nil {
		c.SHA256 = hex.EncodeToString(digest.Sum(nil))
	}
	info, err := sink.Commit(ctx, c)
	if err != nil {
		return WriteInfo{}, sink.Abort(err)
	}
	return info, nil
}

// fillSink copies r into the sink, or gives up with ctx.
func fillSink(ctx context.Context, sink Sink, r io.Reader) (int64, error) {
	type result struct {
		n   int64
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := copyAll(sink.Writer(), r)
		done <- result{n, err}
	}()
	select {
	case res := <-done:
		if res.err == nil || ctx.Err() == nil {
			return res.n, res.err
		}
		// The cancel ended the writer too, which was heard first.
		return res.n, Cancelled(ctx, "write_file_stream", "")
	case <-ctx.Done():
		return 0, Cancelled(ctx, "write_file_stream", "")
	}
}

// copyAll copies r to w until EOF, in the kernel where both are descriptors.
func copyAll(w io.Writer, r io.Reader) (int64, error) {
	if !isDescriptor(r) {
		return copyPlain(w, r)
	}
	var total int64
	var p Pieces
	for {
		want := p.Next()
		n, err := copyUpTo(w, r, want)
		total += n
		if werr := writersOwn(err); werr != nil {
			err = werr
		}
		if err != nil || n < want {
			return total, err
		}
	}
}

func isDescriptor(v any) bool {
	switch v.(type) {
	case *os.File, *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// takesFromKernel tells whether the kernel can write to w by itself. Not every
// device can be spliced to, and what was on its way to one that cannot is lost.
func takesFromKernel(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return isDescriptor(w)
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&(os.ModeDevice|os.ModeCharDevice) == 0
}

// copyUpTo copies at most n bytes; fewer without an error is EOF. Where both
// ends are descriptors the standard library uses sendfile, splice or
// copy_file_range.
func copyUpTo(w io.Writer, r io.Reader, n int64) (int64, error) {
	if rf, ok := w.(io.ReaderFrom); ok && isDescriptor(r) && takesFromKernel(w) {
		return rf.ReadFrom(&io.LimitedReader{R: r, N: n})
	}
	return copyPlain(w, &io.LimitedReader{R: r, N: n})
}

// buffers holds copy buffers of 256 KiB.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// copyPlain copies through a buffer and tells write errors from read errors.
func copyPlain(w io.Writer, r io.Reader) (int64, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	var total int64
	for {
		n, rerr := r.Read(*buf)
		if n > 0 {
			m, werr := w.Write((*buf)[:n])
			total += int64(m)
			if werr == nil && m < n {
				werr = io.ErrShortWrite
			}
			if werr != nil {
				return total, &writeError{werr}
			}
		}
		if rerr == io.EOF {
			return total, nil
		}
		if rerr != nil {
			return total, rerr
		}
	}
}

// writeError marks an error as the writer's own.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// readerOnly hides every method of a reader but Read.
type readerOnly struct{ io.Reader }
