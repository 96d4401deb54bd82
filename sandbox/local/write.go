//go:build linux

package local

import (
	"context"
	"io"
	"os"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/root"
	"golang.org/x/sys/unix"
)

const (
	opWrite       = "write_file"
	opWriteStream = "write_file_stream"
	// newMode is the mode of a new file, whatever the umask.
	newMode = 0o644
)

// WriteFile implements sandbox.API.
func (s *Sandbox) WriteFile(ctx context.Context, path string, content []byte, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	if err := keyless("write_file", path, opts.RequestKey); err != nil {
		return sandbox.WriteInfo{}, err
	}
	opts.Size, opts.Digest, opts.Parents = sandbox.Optional[int64]{}, false, false
	info, err := s.writeOnce(ctx, path, content, opts)
	if sandbox.KindOf(err) != sandbox.KindNotFound {
		return info, err
	}
	if opts.IfMatch != "" {
		return info, failKind(sandbox.KindConflict, opWrite, path, "the file is not there")
	}
	if err := s.makeParents(ctx, opWrite, path, opts.Scope); err != nil {
		return info, err
	}
	return s.writeOnce(ctx, path, content, opts)
}

func (s *Sandbox) writeOnce(ctx context.Context, path string, content []byte, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	k, err := s.openSink(ctx, opWrite, path, opts)
	if err != nil {
		return sandbox.WriteInfo{}, err
	}
	k.content, k.inPlace = content, true
	if _, err := k.temp.file.Write(content); err != nil {
		return sandbox.WriteInfo{}, k.Abort(fail(opWrite, path, err))
	}
	return k.Commit(ctx, sandbox.Commit{Bytes: int64(len(content))})
}

func (s *Sandbox) makeParents(ctx context.Context, op, path, scope string) error {
	place, err := s.locate(ctx, op, scope, path)
	if err != nil {
		return err
	}
	defer place.Close()
	if err := place.MkdirParents(); err != nil {
		return fail(op, path, err)
	}
	return nil
}

// WriteFileStream implements sandbox.API.
func (s *Sandbox) WriteFileStream(ctx context.Context, path string, r io.Reader, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	opts.Parents = false
	return sandbox.WriteStream(ctx, s, path, r, opts)
}

// OpenWrite implements sandbox.Backend.
func (s *Sandbox) OpenWrite(ctx context.Context, path string, opts sandbox.WriteOptions) (sandbox.Sink, error) {
	if err := keyless(opWriteStream, path, opts.RequestKey); err != nil {
		return nil, err
	}
	k, err := s.openSink(ctx, opWriteStream, path, opts)
	if err != nil && opts.Parents && sandbox.KindOf(err) == sandbox.KindNotFound {
		if err := s.makeParents(ctx, opWriteStream, path, opts.Scope); err != nil {
			return nil, err
		}
		k, err = s.openSink(ctx, opWriteStream, path, opts)
	}
	if err != nil {
		return nil, err
	}
	k.watch(ctx)
	return k, nil
}

// openSink opens the directory of a write and a temp in it.
func (s *Sandbox) openSink(ctx context.Context, op, path string, opts sandbox.WriteOptions) (*sink, error) {
	if opts.Mode.Known && opts.Mode.Value > 0o777 {
		return nil, invalid(op, path, "mode has bits above 0777")
	}
	if opts.Size.Known && opts.Size.Value < 0 {
		return nil, invalid(op, path, "negative size")
	}
	place, err := s.locate(ctx, op, opts.Scope, path)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	dir, name, err := place.Target()
	if err != nil {
		return nil, fail(op, path, err)
	}
	k := newSink(s, op, path, dir, name, opts)
	if err := k.open(); err != nil {
		unix.Close(dir)
		return nil, err
	}
	return k, nil
}

// writeInPlace writes a file that cannot be replaced, such as a mount point.
func (k *sink) writeInPlace() (sandbox.WriteInfo, error) {
	none := sandbox.WriteInfo{}
	fd, err := openAt(k.dir, k.name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return none, k.fail(err)
	}
	f := os.NewFile(uintptr(fd), k.path)
	err = k.fillInPlace(f)
	v, lookErr := look(fd)
	reader, readErr := root.Reopen(fd, unix.O_RDONLY|unix.O_NONBLOCK)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if readErr == nil { // who may not read it cannot be kept from running it
		awaitClosed(reader)
		unix.Close(reader)
	}
	if err == nil {
		err = lookErr
	}
	if err != nil {
		return none, k.fail(err)
	}
	return sandbox.WriteInfo{Bytes: int64(len(k.content)), ETag: v.etag()}, nil
}

func (k *sink) fillInPlace(f *os.File) error {
	fd := int(f.Fd())
	if _, err := f.WriteAt(k.content, 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(k.content))); err != nil {
		return err
	}
	if k.opts.Mode.Known {
		if err := unix.Fchmod(fd, k.opts.Mode.Value); err != nil {
			return err
		}
	}
	// Who may write a file need not be its owner, who alone may set times.
	if err := k.s.stamp(fd); err != nil && err != unix.EPERM {
		return err
	}
	if k.opts.Sync {
		return f.Sync()
	}
	return nil
}
