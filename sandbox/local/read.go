//go:build linux

package local

import (
	"context"
	"io"
	"os"
	"unicode/utf8"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/root"
	"golang.org/x/sys/unix"
)

// ReadFile implements sandbox.API.
func (s *Sandbox) ReadFile(ctx context.Context, path string, opts sandbox.ReadOptions) (string, error) {
	content, err := s.readBuffer(ctx, "read_file", path, opts)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(content.Data) {
		return "", failKind(sandbox.KindInvalidUTF8, "read_file", path, "the file is no UTF-8 text")
	}
	return string(content.Data), nil
}

// ReadFileBuffer implements sandbox.API. What the limit binds is the part
// that was asked for.
func (s *Sandbox) ReadFileBuffer(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.FileContent, error) {
	return s.readBuffer(ctx, "read_file_buffer", path, opts)
}

// rereads is how often a buffered read starts again when the file was
// written meanwhile.
const rereads = 3

func (s *Sandbox) readBuffer(ctx context.Context, op, path string, opts sandbox.ReadOptions) (sandbox.FileContent, error) {
	none := sandbox.FileContent{}
	f, v, err := s.openFile(ctx, op, path, opts)
	if err != nil {
		return none, err
	}
	defer f.Close()
	if v.endless() {
		return s.readEndless(op, path, f, v, opts)
	}
	for try := 0; ; try++ {
		_, length := clip(v.st.Size, opts)
		if length > s.opts.Limits.MaxBufferedBytes {
			return none, tooLarge(op, path, s.opts.Limits.MaxBufferedBytes)
		}
		data := make([]byte, length)
		n, err := f.ReadAt(data, opts.Offset)
		if err != nil && err != io.EOF {
			return none, fail(op, path, err)
		}
		content := sandbox.FileContent{Data: data[:n], Size: v.st.Size, ETag: v.etag()}
		after, err := look(int(f.Fd()))
		if err != nil {
			return none, fail(op, path, err)
		}
		if after.sameContent(v) || try == rereads {
			return content, nil
		}
		if ctx.Err() != nil {
			return none, sandbox.Cancelled(ctx, op, path)
		}
		v = after
	}
}

// readEndless reads a file whose size says nothing.
func (s *Sandbox) readEndless(op, path string, f *os.File, v version, opts sandbox.ReadOptions) (sandbox.FileContent, error) {
	limit := s.opts.Limits.MaxBufferedBytes
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return sandbox.FileContent{}, fail(op, path, err)
	}
	if int64(len(data)) > limit {
		return sandbox.FileContent{}, tooLarge(op, path, limit)
	}
	size := int64(len(data))
	offset, length := clip(size, opts)
	return sandbox.FileContent{Data: data[offset : offset+length], Size: size, ETag: v.etag()}, nil
}

// clip returns the part of a file that options ask for.
func clip(size int64, opts sandbox.ReadOptions) (offset, length int64) {
	offset = min(opts.Offset, size)
	length = size - offset
	if opts.Length.Known {
		length = min(length, opts.Length.Value)
	}
	return offset, length
}

// openFile opens a regular file for reading. Nothing else is ever opened but
// by O_PATH: to open a FIFO or a device is to act on it.
func (s *Sandbox) openFile(ctx context.Context, op, path string, opts sandbox.ReadOptions) (*os.File, version, error) {
	if opts.Offset < 0 || opts.Length.Known && opts.Length.Value < 0 {
		return nil, version{}, invalid(op, path, "negative offset or length")
	}
	place, err := s.locate(ctx, op, opts.Scope, path)
	if err != nil {
		return nil, version{}, err
	}
	defer place.Close()
	fd, v, err := openRegular(op, path, place)
	if err != nil {
		return nil, v, err
	}
	if opts.IfMatch != "" && v.etag() != opts.IfMatch {
		unix.Close(fd)
		return nil, v, failKind(sandbox.KindConflict, op, path, "the file is another version")
	}
	return os.NewFile(uintptr(fd), path), v, nil
}

func openRegular(op, path string, place *root.Place) (int, version, error) {
	at, err := place.Open()
	if err != nil {
		return -1, version{}, fail(op, path, err)
	}
	defer unix.Close(at)
	v, err := look(at)
	if err != nil {
		return -1, v, fail(op, path, err)
	}
	if err := wantRegular(op, path, v.st.Mode); err != nil {
		return -1, v, err
	}
	fd, err := root.Reopen(at, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return -1, v, fail(op, path, err)
	}
	// It is known to be a file now. One that does not block would go to the
	// poller where its file system has one, as FUSE does, and then its close
	// waits for a read that hangs.
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return -1, v, fail(op, path, err)
	}
	return fd, v, nil
}

// wantRegular refuses what is no regular file.
func wantRegular(op, path string, mode uint32) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return fail(op, path, unix.EISDIR)
	}
	return failKind(sandbox.KindNotRegular, op, path, "not a regular file")
}
