//go:build linux

package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
	"sync"

	"github.com/controld/controld/sandbox"
)

const opReadStream = "read_file_stream"

// ReadFileStream implements sandbox.API.
func (s *Sandbox) ReadFileStream(ctx context.Context, path string, opts sandbox.ReadOptions) (*sandbox.ReadStream, error) {
	return sandbox.OpenStream(ctx, s, path, opts)
}

// OpenRead implements sandbox.Backend.
func (s *Sandbox) OpenRead(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.Source, error) {
	if err := keyless(opReadStream, path, opts.RequestKey); err != nil {
		return nil, err
	}
	f, v, err := s.openFile(ctx, opReadStream, path, opts)
	if err != nil {
		return nil, err
	}
	src := &source{ctx: ctx, path: path, opts: opts, file: f, at: v}
	src.offset = opts.Offset
	if !v.endless() {
		src.offset, src.length = clip(v.st.Size, opts)
	}
	if src.offset > 0 {
		if err := src.skip(); err != nil {
			f.Close()
			return nil, fail(opReadStream, path, err)
		}
	}
	if opts.Digest {
		src.digest = sha256.New()
	}
	src.reader = src.chain()
	src.stop = context.AfterFunc(ctx, src.release)
	return src, nil
}

// source is an opened file. Its version is the one that was there at the
// open; Finish looks again.
type source struct {
	ctx    context.Context
	path   string
	opts   sandbox.ReadOptions
	file   *os.File
	at     version
	offset int64
	length int64
	digest hash.Hash
	reader io.Reader
	stop   func() bool
	once   sync.Once
}

// skip goes to the offset; a file that cannot seek is read up to it.
func (r *source) skip() error {
	_, err := r.file.Seek(r.offset, io.SeekStart)
	if err != nil && r.at.endless() {
		_, err = io.CopyN(io.Discard, r.file, r.offset)
		if err == io.EOF {
			err = nil
		}
	}
	return err
}

// Size implements sandbox.Source.
func (r *source) Size() (int64, bool) {
	if r.at.endless() {
		return 0, false
	}
	return r.at.st.Size, true
}

// Length implements sandbox.Source.
func (r *source) Length() (int64, bool) {
	if r.at.endless() {
		return 0, false
	}
	return r.length, true
}

// ETag implements sandbox.Source.
func (r *source) ETag() string { return r.at.etag() }

// Reader implements sandbox.Source.
func (r *source) Reader() io.Reader { return r.reader }

// chain puts together what Reader returns: the file itself where it can.
func (r *source) chain() io.Reader {
	var from io.Reader = r.file
	if r.at.endless() && r.opts.Length.Known {
		from = io.LimitReader(from, r.opts.Length.Value)
	}
	if r.digest != nil {
		from = io.TeeReader(from, r.digest)
	}
	return from
}

// Finish implements sandbox.Source.
func (r *source) Finish(sent int64) (sandbox.ReadVerdict, error) {
	var verdict sandbox.ReadVerdict
	if r.ctx.Err() != nil {
		return verdict, sandbox.Cancelled(r.ctx, opReadStream, r.path)
	}
	var now version
	raw, err := r.file.SyscallConn()
	if err == nil {
		var inner error
		err = raw.Control(func(fd uintptr) { now, inner = look(int(fd)) })
		if err == nil {
			err = inner
		}
	}
	if err != nil {
		return verdict, fail(opReadStream, r.path, err)
	}
	if !r.at.endless() {
		verdict.Changed = !now.sameContent(r.at)
		if now.st.Size < r.offset+r.length || verdict.Changed && (r.opts.IfMatch != "" || sent < r.length) {
			return verdict, &sandbox.Error{Kind: sandbox.KindChanged, Op: opReadStream, Path: r.path,
				Message: "the file changed while it was read", Bytes: sandbox.Some(sent)}
		}
	}
	if r.digest != nil {
		verdict.SHA256 = hex.EncodeToString(r.digest.Sum(nil))
	}
	return verdict, nil
}

// Close implements sandbox.Source.
func (r *source) Close() error {
	r.stop()
	r.release()
	return nil
}

func (r *source) release() { r.once.Do(func() { r.file.Close() }) }
