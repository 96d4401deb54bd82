package adapter

import (
	"context"
	"io"
	"unicode/utf8"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// Info implements [sandbox.Backend]: what the server said at hello.
func (s *Sandbox) Info(ctx context.Context) (sandbox.Info, error) {
	l, err := s.link(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	return l.hello.Info, nil
}

// ReadFile implements [sandbox.API].
func (s *Sandbox) ReadFile(ctx context.Context, path string, opts sandbox.ReadOptions) (string, error) {
	c, err := s.readBuffer(ctx, rpc.MethodReadFile, path, opts)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(c.Data) {
		return "", &sandbox.Error{Kind: sandbox.KindInvalidUTF8, Op: rpc.MethodReadFile, Path: path}
	}
	return string(c.Data), nil
}

// ReadFileBuffer implements [sandbox.API].
func (s *Sandbox) ReadFileBuffer(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.FileContent, error) {
	return s.readBuffer(ctx, rpc.MethodReadFileBuffer, path, opts)
}

// readBuffer lets the server send longer content over the data port.
func (s *Sandbox) readBuffer(ctx context.Context, op, path string, opts sandbox.ReadOptions) (sandbox.FileContent, error) {
	l, err := s.link(ctx)
	if err != nil {
		return sandbox.FileContent{}, at(err, op, path)
	}
	opts.InlineMax = sandbox.Some(s.opts.InlineMax)
	r, err := l.rpc.ReadFile(ctx, path, opts)
	if err != nil {
		return sandbox.FileContent{}, at(err, op, path)
	}
	if r.Transfer == nil {
		return r.File, nil
	}
	src, err := s.claimRead(ctx, l, mintedBuffer(r, opts), ahead{})
	if err != nil {
		return sandbox.FileContent{}, at(err, op, path)
	}
	defer src.Close()
	data, err := readWhole(sandbox.NewReadStream(src, sandbox.ReadOptions{}), r.Length)
	if err != nil {
		return sandbox.FileContent{}, at(err, op, path)
	}
	if _, err := src.Finish(r.Length); err != nil {
		return sandbox.FileContent{}, at(err, op, path)
	}
	r.File.Data = data
	return r.File, nil
}

// mostAtOnce is how many bytes are made room for since a server promises them;
// what is beyond must come first.
const mostAtOnce = 16 << 20

// readWhole reads exactly n bytes.
func readWhole(r io.Reader, n int64) ([]byte, error) {
	var data []byte
	for have := int64(0); have < n; {
		room := min(n-have, max(have, mostAtOnce))
		data = append(make([]byte, 0, have+room), data...)[:have+room]
		if _, err := io.ReadFull(r, data[have:]); err != nil {
			return nil, err
		}
		have += room
	}
	return data, nil
}

// WriteFile implements [sandbox.API].
func (s *Sandbox) WriteFile(ctx context.Context, path string, content []byte, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	if int64(len(content)) > s.opts.InlineMax {
		info, err := s.writeLarge(ctx, path, content, opts)
		if sandbox.KindOf(err) != sandbox.KindBusy {
			return info, at(err, rpc.MethodWriteFile, path)
		}
		// What cannot be renamed over is written in place, by this call only.
	}
	return keyed(ctx, s, rpc.MethodWriteFile, path, opts.RequestKey, func(l *link, key string) (sandbox.WriteInfo, error) {
		opts.RequestKey = key
		return l.rpc.WriteFile(ctx, path, content, opts)
	})
}

// writeLarge writes content over the data port.
func (s *Sandbox) writeLarge(ctx context.Context, path string, content []byte, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	opts.Parents, opts.Size, opts.Digest = true, sandbox.Some(int64(len(content))), false
	sink, err := s.openWrite(ctx, path, opts)
	if err != nil {
		return sandbox.WriteInfo{}, err
	}
	if _, err := sink.writer.Write(content); err != nil {
		return sandbox.WriteInfo{}, sink.Abort(err)
	}
	return sink.Commit(ctx, sandbox.Commit{Bytes: int64(len(content))})
}

// at names the call and the path in an error of one of its parts.
func at(err error, op, path string) error {
	if err == nil {
		return nil
	}
	e := *sandbox.AsError(op, path, err)
	e.Op, e.Path = op, path
	return &e
}

// Stat implements [sandbox.API].
func (s *Sandbox) Stat(ctx context.Context, path string, opts sandbox.StatOptions) (sandbox.FileStat, error) {
	l, err := s.link(ctx)
	if err != nil {
		return sandbox.FileStat{}, at(err, rpc.MethodStat, path)
	}
	return l.rpc.Stat(ctx, path, opts)
}

// ReadDir implements [sandbox.API].
func (s *Sandbox) ReadDir(ctx context.Context, path string, opts sandbox.ReadDirOptions) (sandbox.Listing, error) {
	l, err := s.link(ctx)
	if err != nil {
		return sandbox.Listing{}, at(err, rpc.MethodReadDir, path)
	}
	return l.rpc.ReadDir(ctx, path, opts)
}

// Exists implements [sandbox.API].
func (s *Sandbox) Exists(ctx context.Context, path string, opts sandbox.ExistsOptions) (bool, error) {
	l, err := s.link(ctx)
	if err != nil {
		return false, at(err, rpc.MethodExists, path)
	}
	return l.rpc.Exists(ctx, path, opts)
}

// Mkdir implements [sandbox.API].
func (s *Sandbox) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	_, err := keyed(ctx, s, rpc.MethodMkdir, path, opts.RequestKey, func(l *link, key string) (struct{}, error) {
		opts.RequestKey = key
		return struct{}{}, l.rpc.Mkdir(ctx, path, opts)
	})
	return err
}

// Rm implements [sandbox.API].
func (s *Sandbox) Rm(ctx context.Context, path string, opts sandbox.RmOptions) error {
	_, err := keyed(ctx, s, rpc.MethodRm, path, opts.RequestKey, func(l *link, key string) (struct{}, error) {
		opts.RequestKey = key
		return struct{}{}, l.rpc.Rm(ctx, path, opts)
	})
	return err
}

// Exec implements [sandbox.API].
func (s *Sandbox) Exec(ctx context.Context, command string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	return keyed(ctx, s, rpc.MethodExec, "", opts.RequestKey, func(l *link, key string) (sandbox.ShellResult, error) {
		opts.RequestKey = key
		return l.rpc.Exec(ctx, command, opts)
	})
}

// ReadFileStream implements [sandbox.API].
func (s *Sandbox) ReadFileStream(ctx context.Context, path string, opts sandbox.ReadOptions) (*sandbox.ReadStream, error) {
	return sandbox.OpenStream(ctx, s, path, opts)
}

// WriteFileStream implements [sandbox.API]. It makes no parents; who must have
// them gives OpenWrite the option.
func (s *Sandbox) WriteFileStream(ctx context.Context, path string, r io.Reader, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	opts.Parents = false
	return sandbox.WriteStream(ctx, s, path, r, opts)
}
