package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/controld/controld/sandbox"
)

// source yields what r yields and ends as err says.
type source struct {
	r      io.Reader
	length sandbox.Optional[int64]
	err    error
}

func (s *source) Size() (int64, bool)   { return s.length.Value, s.length.Known }
func (s *source) Length() (int64, bool) { return s.length.Value, s.length.Known }
func (s *source) ETag() string          { return "e" }
func (s *source) Reader() io.Reader     { return s.r }
func (s *source) Close() error          { return nil }
func (s *source) Finish(int64) (sandbox.ReadVerdict, error) {
	return sandbox.ReadVerdict{}, s.err
}

func TestReadStreamEndsWithTheVerdict(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		src  *source
		want sandbox.Kind
		got  string
	}{
		"whole":            {&source{r: strings.NewReader("hello"), length: sandbox.Some(int64(5))}, "", "hello"},
		"no length":        {&source{r: strings.NewReader("hello")}, "", "hello"},
		"more than length": {&source{r: strings.NewReader("hello"), length: sandbox.Some(int64(3))}, "", "hel"},
		"short":            {&source{r: strings.NewReader("hel"), length: sandbox.Some(int64(5))}, sandbox.KindTruncated, "hel"},
		"verdict":          {&source{r: strings.NewReader("hello"), length: sandbox.Some(int64(5)), err: &sandbox.Error{Kind: sandbox.KindChanged}}, sandbox.KindChanged, "hello"},
		"read error":       {&source{r: io.MultiReader(strings.NewReader("he"), iotest.ErrReader(boom)), length: sandbox.Some(int64(5))}, sandbox.KindInternal, "he"},
		"better reason":    {&source{r: iotest.ErrReader(boom), length: sandbox.Some(int64(5)), err: &sandbox.Error{Kind: sandbox.KindStalled}}, sandbox.KindStalled, ""},
	} {
		got, err := io.ReadAll(sandbox.NewReadStream(tc.src, sandbox.ReadOptions{}))
		if string(got) != tc.got || sandbox.KindOf(err) != tc.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		var e *sandbox.Error
		if err != nil && (!errors.As(err, &e) || e.Bytes != sandbox.Some(int64(len(tc.got)))) {
			t.Errorf("%s: %v does not say how far it came", name, err)
		}
	}
}

func TestReadStreamChecksTheDigest(t *testing.T) {
	s := sandbox.NewReadStream(&source{r: strings.NewReader("hello"), length: sandbox.Some(int64(5))}, sandbox.ReadOptions{Digest: true})
	_, err := io.ReadAll(s)
	if sandbox.KindOf(err) != sandbox.KindCorrupt {
		t.Errorf("%v", err)
	}
}

// TestWriteToSaysWhoseErrorItWas: a full target and one that nobody reads are
// no broken source, also where the kernel could copy.
func TestWriteToSaysWhoseErrorItWas(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full")
	}
	defer full.Close()
	unread, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	unread.Close()
	for name, tc := range map[string]struct {
		to   *os.File
		want error
	}{"full": {full, syscall.ENOSPC}, "unread": {write, syscall.EPIPE}} {
		for kind, r := range map[string]io.Reader{"reader": strings.NewReader("hello"), "connection": connectionOf(t, "hello")} {
			src := &source{r: r, length: sandbox.Some(int64(5)), err: &sandbox.Error{Kind: sandbox.KindAborted}}
			if _, err := sandbox.NewReadStream(src, sandbox.ReadOptions{}).WriteTo(tc.to); !errors.Is(err, tc.want) {
				t.Errorf("%s from a %s: %v, want %v", name, kind, err, tc.want)
			}
		}
	}
}

// connectionOf returns a connection that yields text.
func connectionOf(t *testing.T, text string) net.Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); peer.Close() })
	if _, err := io.WriteString(peer, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// sink takes up to room bytes.
type sink struct {
	bytes.Buffer
	room    int
	aborted error
}

func (k *sink) Writer() io.Writer { return writerFunc(k.write) }

func (k *sink) write(p []byte) (int, error) {
	if k.Len()+len(p) > k.room {
		return 0, syscall.EPIPE
	}
	return k.Buffer.Write(p)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (k *sink) Commit(_ context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	if c.Bytes != int64(k.Len()) {
		return sandbox.WriteInfo{}, &sandbox.Error{Kind: sandbox.KindTruncated}
	}
	return sandbox.WriteInfo{Bytes: c.Bytes}, nil
}

func (k *sink) Abort(cause error) error {
	k.aborted = cause
	if errors.Is(cause, syscall.EPIPE) {
		return &sandbox.Error{Kind: sandbox.KindNoSpace}
	}
	return sandbox.AsError("write", "", cause)
}

// sinkBackend opens one sink.
type sinkBackend struct {
	sandbox.Backend
	sink *sink
}

func (b sinkBackend) OpenWrite(context.Context, string, sandbox.WriteOptions) (sandbox.Sink, error) {
	return b.sink, nil
}

func TestWriteStream(t *testing.T) {
	k := &sink{room: 100}
	info, err := sandbox.WriteStream(t.Context(), sinkBackend{sink: k}, "f", strings.NewReader("hello"), sandbox.WriteOptions{})
	if err != nil || info.Bytes != 5 || k.String() != "hello" || k.aborted != nil {
		t.Errorf("%+v, %v", info, err)
	}
	k = &sink{room: 3}
	_, err = sandbox.WriteStream(t.Context(), sinkBackend{sink: k}, "f", strings.NewReader("hello"), sandbox.WriteOptions{})
	if sandbox.KindOf(err) != sandbox.KindNoSpace {
		t.Errorf("the far end's reason is lost: %v", err)
	}
	k = &sink{room: 100}
	boom := errors.New("boom")
	_, err = sandbox.WriteStream(t.Context(), sinkBackend{sink: k}, "f", iotest.ErrReader(boom), sandbox.WriteOptions{})
	if !errors.Is(err, boom) || !errors.Is(k.aborted, boom) {
		t.Errorf("%v, aborted with %v", err, k.aborted)
	}
}

func TestErrorsAreErrnosAlike(t *testing.T) {
	for _, tc := range []struct {
		err  *sandbox.Error
		is   []error
		isnt []error
	}{
		{&sandbox.Error{Kind: sandbox.KindNotFound}, []error{os.ErrNotExist, syscall.ENOENT}, []error{os.ErrExist, syscall.EACCES}},
		{&sandbox.Error{Kind: sandbox.KindExists}, []error{os.ErrExist, syscall.EEXIST}, []error{os.ErrNotExist}},
		{&sandbox.Error{Kind: sandbox.KindPermission, Errno: "EPERM"}, []error{os.ErrPermission, syscall.EPERM}, []error{syscall.EACCES}},
		{&sandbox.Error{Kind: sandbox.KindNoSpace, Errno: "EDQUOT"}, []error{syscall.EDQUOT}, []error{syscall.ENOSPC}},
		{&sandbox.Error{Kind: sandbox.KindNoSpace}, []error{syscall.ENOSPC}, []error{syscall.EDQUOT}},
		{&sandbox.Error{Kind: sandbox.KindInternal, Errno: "EIO"}, []error{syscall.EIO}, []error{syscall.ENOENT}},
		{&sandbox.Error{Kind: sandbox.KindCancelled}, []error{context.Canceled}, []error{context.DeadlineExceeded}},
		{&sandbox.Error{Kind: sandbox.KindCancelled, Err: context.DeadlineExceeded}, []error{context.DeadlineExceeded}, []error{context.Canceled}},
		{sandbox.FromErrno("open", "f", syscall.ELOOP), []error{syscall.ELOOP, &sandbox.Error{Kind: sandbox.KindLoop}, &sandbox.Error{Kind: sandbox.KindLoop, Path: "f"}}, []error{&sandbox.Error{Kind: sandbox.KindLoop, Path: "g"}}},
	} {
		for _, target := range tc.is {
			if !errors.Is(tc.err, target) {
				t.Errorf("%+v is not %v", tc.err, target)
			}
		}
		for _, target := range tc.isnt {
			if errors.Is(tc.err, target) {
				t.Errorf("%+v is %v", tc.err, target)
			}
		}
	}
}

// closedSink is a sink whose writer a cancel has ended already.
type closedSink struct{ sandbox.Sink }

func (closedSink) Writer() io.Writer       { return failingWriter{net.ErrClosed} }
func (closedSink) Abort(cause error) error { return cause }

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

type closedBackend struct{ sandbox.Backend }

func (closedBackend) OpenWrite(context.Context, string, sandbox.WriteOptions) (sandbox.Sink, error) {
	return closedSink{}, nil
}

// TestCancelEndsTheWriterFirst: a cancel is one, whichever of it and the writer
// that it ended is heard first.
func TestCancelEndsTheWriterFirst(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		_, err := sandbox.WriteStream(ctx, closedBackend{}, "f", strings.NewReader("x"), sandbox.WriteOptions{})
		if sandbox.KindOf(err) != sandbox.KindCancelled {
			t.Fatal(err)
		}
	}
}
