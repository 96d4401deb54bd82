package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/controld/controld/sandbox"
)

// fake is a backend in memory. Its commands are words: see Exec.
type fake struct {
	mu      sync.Mutex
	files   map[string][]byte
	names   []string      // of every directory
	unsized bool          // sources do not know their length
	started chan string   // told of each command that blocks
	release chan struct{} // ends the commands "wait" and "stubborn"
	writes  chan string   // where set, told of each write, which then waits for release
	commit  chan struct{} // where set, commits wait for it to be closed
	seen    any           // the options of the last call
	fail    error         // where set, what every stat fails with
	stat    *sandbox.FileStat
	// committing counts the commits that began.
	committing atomic.Int64
}

func newFake() *fake {
	return &fake{
		files:   map[string][]byte{"hello.txt": []byte("hi")},
		started: make(chan string, 8192),
		release: make(chan struct{}),
	}
}

func (f *fake) put(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[name] = data
}

func (f *fake) get(op, name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.files[name]
	if !ok {
		return nil, &sandbox.Error{Kind: sandbox.KindNotFound, Op: op, Path: name, Errno: "ENOENT", Message: "no such file or directory"}
	}
	return data, nil
}

func (f *fake) saw(v any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = v
}

func (f *fake) Info(context.Context) (sandbox.Info, error) { return fakeInfo(), nil }

func fakeInfo() sandbox.Info {
	return sandbox.Info{Cwd: "/w", Epoch: "e1", Capabilities: []string{sandbox.CapExec}}
}

func (f *fake) ReadFile(context.Context, string, sandbox.ReadOptions) (string, error) {
	panic("the server reads buffers")
}

func (f *fake) ReadFileBuffer(context.Context, string, sandbox.ReadOptions) (sandbox.FileContent, error) {
	panic("the server opens")
}

func (f *fake) WriteFile(ctx context.Context, path string, content []byte, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	f.saw(opts)
	if f.writes != nil {
		f.writes <- path
		select {
		case <-f.release:
		case <-ctx.Done():
			return sandbox.WriteInfo{}, sandbox.Cancelled(ctx, "write_file", path)
		}
	}
	f.put(path, append([]byte(nil), content...))
	return sandbox.WriteInfo{Bytes: int64(len(content)), ETag: "w1", Atomic: true}, nil
}

func (f *fake) Stat(ctx context.Context, path string, opts sandbox.StatOptions) (sandbox.FileStat, error) {
	f.saw(opts)
	if path == "wait" || path == "stubborn" {
		return sandbox.FileStat{}, f.hang(ctx, path)
	}
	if f.fail != nil {
		return sandbox.FileStat{}, f.fail
	}
	if f.stat != nil {
		return *f.stat, nil
	}
	data, err := f.get("stat", path)
	if err != nil {
		return sandbox.FileStat{}, err
	}
	return sandbox.FileStat{Type: sandbox.TypeFile, Size: sandbox.Some(int64(len(data)))}, nil
}

// hang waits for release; a stubborn one does not hear that it is cancelled.
func (f *fake) hang(ctx context.Context, path string) error {
	f.started <- "stat " + path
	if path == "stubborn" {
		ctx = context.Background()
	}
	select {
	case <-f.release:
		return nil
	case <-ctx.Done():
		f.started <- "cancelled"
		return sandbox.Cancelled(ctx, "stat", path)
	}
}

func (f *fake) ReadDir(_ context.Context, _ string, opts sandbox.ReadDirOptions) (sandbox.Listing, error) {
	f.saw(opts)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names != nil {
		return sandbox.Listing{Names: f.names}, nil
	}
	var names []string
	for name := range f.files {
		names = append(names, name)
	}
	sort.Strings(names)
	return sandbox.Listing{Names: names}, nil
}

func (f *fake) Exists(_ context.Context, path string, opts sandbox.ExistsOptions) (bool, error) {
	f.saw(opts)
	_, err := f.get("exists", path)
	return err == nil, nil
}

func (f *fake) Mkdir(_ context.Context, _ string, opts sandbox.MkdirOptions) error {
	f.saw(opts)
	return nil
}

func (f *fake) Rm(_ context.Context, path string, opts sandbox.RmOptions) error {
	f.saw(opts)
	_, err := f.get("rm", path)
	return err
}

// Exec knows: block (until cancelled), wait (until released or cancelled),
// stubborn (until released), echo WORD, out N (bytes), grow N (asking), panic.
func (f *fake) Exec(ctx context.Context, command string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	f.saw(opts)
	word, arg, _ := strings.Cut(command, " ")
	res := sandbox.ShellResult{Reason: sandbox.ReasonExited}
	var release <-chan struct{}
	done := ctx.Done()
	switch word {
	case "block":
	case "wait":
		release = f.release
	case "stubborn":
		release, done = f.release, nil
	case "panic":
		panic("boom")
	case "out":
		n, _ := strconv.Atoi(arg)
		res.Stdout = bytes.Repeat([]byte("x"), n)
		return res, nil
	case "grow":
		return f.grow(arg, opts)
	default:
		res.Stdout = []byte(arg)
		return res, nil
	}
	f.started <- command
	select {
	case <-release:
		res.Stdout = []byte("released")
		return res, nil
	case <-done:
		return res, sandbox.Cancelled(ctx, "exec", "")
	}
}

func (f *fake) grow(arg string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	res := sandbox.ShellResult{Reason: sandbox.ReasonExited}
	n, _ := strconv.Atoi(arg)
	for left := n; left > 0; left -= 1024 {
		if opts.Grow(min(left, 1024)) {
			res.Stdout = append(res.Stdout, make([]byte, min(left, 1024))...)
		} else {
			res.StdoutOmitted += int64(min(left, 1024))
		}
	}
	return res, nil
}

func (f *fake) ReadFileStream(ctx context.Context, path string, opts sandbox.ReadOptions) (*sandbox.ReadStream, error) {
	return sandbox.OpenStream(ctx, f, path, opts)
}

func (f *fake) WriteFileStream(ctx context.Context, path string, r io.Reader, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	return sandbox.WriteStream(ctx, f, path, r, opts)
}

func (f *fake) OpenRead(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.Source, error) {
	f.saw(opts)
	if path == "block" {
		f.started <- path
		<-ctx.Done()
		return nil, sandbox.Cancelled(ctx, "read_file", path)
	}
	data, err := f.get("read_file", path)
	if err != nil {
		return nil, err
	}
	part := data[min(opts.Offset, int64(len(data))):]
	if opts.Length.Known {
		part = part[:min(opts.Length.Value, int64(len(part)))]
	}
	return &source{whole: int64(len(data)), length: int64(len(part)), r: bytes.NewReader(part), unsized: f.unsized}, nil
}

type source struct {
	whole, length int64
	r             io.Reader
	unsized       bool
}

func (s *source) Size() (int64, bool)   { return s.whole, !s.unsized }
func (s *source) Length() (int64, bool) { return s.length, !s.unsized }
func (s *source) ETag() string          { return "r1" }
func (s *source) Reader() io.Reader     { return s.r }
func (s *source) Close() error          { return nil }
func (s *source) Finish(sent int64) (sandbox.ReadVerdict, error) {
	if sent != s.length {
		return sandbox.ReadVerdict{}, &sandbox.Error{Kind: sandbox.KindChanged, Op: "read_file"}
	}
	return sandbox.ReadVerdict{}, nil
}

func (f *fake) OpenWrite(_ context.Context, path string, opts sandbox.WriteOptions) (sandbox.Sink, error) {
	f.saw(opts)
	return &sink{f: f, path: path}, nil
}

type sink struct {
	f    *fake
	path string
	buf  bytes.Buffer
}

func (s *sink) Writer() io.Writer { return &s.buf }

func (s *sink) Commit(ctx context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	s.f.committing.Add(1)
	if s.f.commit != nil {
		<-s.f.commit
	}
	if int64(s.buf.Len()) != c.Bytes {
		return sandbox.WriteInfo{}, fmt.Errorf("got %d bytes, want %d", s.buf.Len(), c.Bytes)
	}
	s.f.put(s.path, s.buf.Bytes())
	return sandbox.WriteInfo{Bytes: c.Bytes, ETag: "s1", Atomic: true}, nil
}

func (s *sink) Abort(cause error) error { return cause }

var _ sandbox.Backend = (*fake)(nil)
