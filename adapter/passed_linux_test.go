package adapter_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// newPassing is a stage that hands files over, and an adapter that takes them.
func newPassing(t *testing.T, change func(*server.Config, sandbox.Backend)) (*stage, *adapter.Sandbox) {
	t.Helper()
	st := newStageWith(t, "unix://"+filepath.Join(t.TempDir(), "s"), func(c *server.Config, b sandbox.Backend) {
		c.PassFiles = &dataport.PassRules{}
		change(c, b)
	})
	return st, connect(t, adapter.Options{Control: st.addr.String(), PassFiles: true})
}

func noChange(*server.Config, sandbox.Backend) {}

func (st *stage) put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(st.cwd, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// isPassed tells whether a stream has a file in place of a connection.
func isPassed(stream any) bool {
	_, ok := stream.(*dataport.Passed)
	return ok
}

// TestTakesFiles: P11.20. Files are taken over where they are to be had, and one
// that is not to be had changes nothing for the next.
func TestTakesFiles(t *testing.T) {
	st, sb := newPassing(t, noChange)
	st.put(t, "f", "text")
	for name, tc := range map[string]struct {
		path  string
		opts  sandbox.ReadOptions
		want  bool
		begin string
	}{
		"a file":        {"f", sandbox.ReadOptions{}, true, "te"},
		"with a digest": {"f", sandbox.ReadOptions{Digest: true}, false, "te"},
		"made up":       {"/proc/self/status", sandbox.ReadOptions{}, false, ""},
		"a part":        {"f", sandbox.ReadOptions{Offset: 1, Length: sandbox.Some[int64](2)}, true, "ex"},
		"in a scope":    {st.cwd + "/f", sandbox.ReadOptions{Scope: st.cwd}, true, "te"},
	} {
		src, err := sb.OpenRead(t.Context(), tc.path, tc.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := isPassed(src.Reader()); got != tc.want {
			t.Errorf("%s: taken over %v", name, got)
		}
		begin := make([]byte, 2)
		if _, err := io.ReadFull(src.Reader(), begin); err != nil || tc.begin != "" && string(begin) != tc.begin {
			t.Errorf("%s: begins with %q, %v", name, begin, err)
		}
		src.Close()
	}
	for digest, want := range map[bool]bool{true: false, false: true} {
		sink, err := sb.OpenWrite(t.Context(), "g", sandbox.WriteOptions{Digest: digest})
		if err != nil {
			t.Fatal(err)
		}
		if got := isPassed(sink.Writer()); got != want {
			t.Errorf("digest %v: taken over %v", digest, got)
		}
		sink.Abort(nil)
	}
	plain := connect(t, adapter.Options{Control: st.addr.String()})
	src, err := plain.OpenRead(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil || isPassed(src.Reader()) {
		t.Errorf("taken over unasked, %v", err)
	}
	src.Close()
}

// TestLeasesAreFew: P11.20. Past 64 at once the bytes come as usual.
func TestLeasesAreFew(t *testing.T) {
	st, sb := newPassing(t, noChange)
	st.put(t, "f", "text")
	var open []sandbox.Source
	openOne := func() sandbox.Source {
		src, err := sb.OpenRead(t.Context(), "f", sandbox.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { src.Close() })
		return src
	}
	for i := range 70 {
		src := openOne()
		open = append(open, src)
		if got := isPassed(src.Reader()); got != (i < 64) {
			t.Fatalf("number %d: taken over %v", i, got)
		}
	}
	open[3].Close()
	open[3].Close()
	if src := openOne(); !isPassed(src.Reader()) {
		t.Error("a place that was given back is not taken")
	}
	if src := openOne(); isPassed(src.Reader()) {
		t.Error("a place was given back twice")
	}
	for i, src := range open[60:] {
		text, err := io.ReadAll(io.LimitReader(src.Reader(), 4))
		if err != nil || string(text) != "text" {
			t.Errorf("number %d: %q, %v", 60+i, text, err)
		}
	}
}

// meddler changes files between their opening and what follows.
type meddler struct {
	sandbox.Backend
	opened func()
	size   int64 // where not 0, what every file is said to have
}

func (m *meddler) OpenRead(ctx context.Context, path string, o sandbox.ReadOptions) (sandbox.Source, error) {
	src, err := m.Backend.OpenRead(ctx, path, o)
	if err == nil && m.opened != nil {
		m.opened()
	}
	if err == nil && m.size > 0 {
		src = longer{src, m.size}
	}
	return src, err
}

// longer says that it has more than it has.
type longer struct {
	sandbox.Source
	size int64
}

func (l longer) Size() (int64, bool)   { return l.size, true }
func (l longer) Length() (int64, bool) { return l.size, true }

// TestReaderIsTheJudge: P10.42, P10.43, P11.17. What happened to a file that was
// taken over since it was minted, its reader sees.
func TestReaderIsTheJudge(t *testing.T) {
	const text = "some text"
	write := func(st *stage, flags int, s string) {
		f, err := os.OpenFile(filepath.Join(st.cwd, "f"), flags|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		opened, read func(*stage)
		size         int64
		match        bool
		opts         sandbox.ReadOptions
		want         sandbox.Kind
		changed      bool
	}{
		"nothing":                    {},
		"nothing, of a version":      {match: true},
		"overwritten before":         {opened: func(st *stage) { write(st, 0, "SOME") }, changed: true},
		"overwritten before, of one": {opened: func(st *stage) { write(st, 0, "SOME") }, match: true, want: sandbox.KindChanged},
		"overwritten":                {read: func(st *stage) { write(st, 0, "SOME") }, changed: true},
		"overwritten, of a version":  {read: func(st *stage) { write(st, 0, "SOME") }, match: true, want: sandbox.KindChanged},
		"grown":                      {read: func(st *stage) { write(st, os.O_APPEND, "more") }, changed: true},
		"shrunk before":              {opened: func(st *stage) { write(st, os.O_TRUNC, "so") }, want: sandbox.KindChanged},
		"shrunk":                     {read: func(st *stage) { write(st, os.O_TRUNC, "so") }, want: sandbox.KindChanged},
		"shorter than it is said":    {size: 1000, want: sandbox.KindChanged},
		"chmod":                      {read: func(st *stage) { os.Chmod(filepath.Join(st.cwd, "f"), 0o600) }},
	} {
		t.Run(name, func(t *testing.T) {
			m := &meddler{size: tc.size}
			st, sb := newPassing(t, func(c *server.Config, b sandbox.Backend) {
				m.Backend = b
				c.Host = host{m}
			})
			st.put(t, "f", text)
			if tc.match {
				fs, err := sb.Stat(t.Context(), "f", sandbox.StatOptions{})
				if err != nil {
					t.Fatal(err)
				}
				tc.opts.IfMatch = fs.ETag
			}
			if tc.opened != nil {
				m.opened = func() { tc.opened(st) }
			}
			s, err := sb.ReadFileStream(t.Context(), "f", tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if tc.read != nil {
				tc.read(st)
			}
			_, err = io.ReadAll(s)
			if sandbox.KindOf(err) != tc.want || s.Verdict().Changed != tc.changed {
				t.Errorf("%v, changed %v", err, s.Verdict().Changed)
			}
		})
	}
}

// TestLeaseOutlivesStalls: P11.14. The server does not see bytes that it does not
// move, so that it knows nothing of stalls.
func TestLeaseOutlivesStalls(t *testing.T) {
	st, sb := newPassing(t, func(c *server.Config, _ sandbox.Backend) { c.Limits.StallTimeout = 50 * time.Millisecond })
	st.put(t, "f", "text")
	r, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	k, err := sb.OpenWrite(t.Context(), "g", sandbox.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // is what is tested
	if text, err := io.ReadAll(r); string(text) != "text" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	io.WriteString(k.Writer(), "late")
	if info, err := k.Commit(t.Context(), sandbox.Commit{Bytes: 4}); err != nil || info.Bytes != 4 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestTakenFilesEnd: with their context, their adapter or their server, and
// leave nothing.
func TestTakenFilesEnd(t *testing.T) {
	st, sb := newPassing(t, noChange)
	st.put(t, "f", strings.Repeat("text", 1000))
	ctx, cancel := context.WithCancel(t.Context())
	src, err := sb.OpenRead(ctx, "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sink, err := sb.OpenWrite(ctx, "g", sandbox.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for err = nil; err == nil; { // whatever is written until then is dropped
		_, err = sink.Writer().Write([]byte("x"))
	}
	_, err = sink.Commit(t.Context(), sandbox.Commit{})
	wantKind(t, err, sandbox.KindCancelled)
	_, err = src.Finish(4000)
	wantKind(t, err, sandbox.KindCancelled)
	for err = nil; !errors.Is(err, os.ErrClosed); {
		_, err = src.Reader().Read(make([]byte, 1))
	}

	src, err = sb.OpenRead(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sink, err = sb.OpenWrite(t.Context(), "g", sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	sb.Close()
	if n, err := src.Reader().Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrClosed) {
		t.Errorf("%d bytes, %v behind Close", n, err)
	}
	if _, err := sink.Writer().Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v behind Close", err)
	}
	sink.Abort(nil)
	src.Close()
	if names, err := os.ReadDir(st.cwd); err != nil || len(names) != 1 {
		t.Errorf("left are %v, %v", names, err)
	}
}

// TestTakenFileFailsAsTheServerSays: the server's word reaches whoever writes.
func TestTakenFileFailsAsTheServerSays(t *testing.T) {
	st, sb := newPassing(t, noChange)
	st.put(t, "f", "old")
	for name, tc := range map[string]struct {
		opts  sandbox.WriteOptions
		bytes int64
		want  sandbox.Kind
	}{
		"fewer":           {sandbox.WriteOptions{}, 3, sandbox.KindTruncated},
		"more":            {sandbox.WriteOptions{}, 5, sandbox.KindTruncated},
		"another size":    {sandbox.WriteOptions{Size: sandbox.Some[int64](5)}, 4, sandbox.KindTruncated},
		"another version": {sandbox.WriteOptions{IfMatch: "1-2-3-4"}, 4, sandbox.KindConflict},
		"as it should":    {sandbox.WriteOptions{Size: sandbox.Some[int64](4), Sync: true, Mode: sandbox.Some[uint32](0o600)}, 4, ""},
	} {
		sink, err := sb.OpenWrite(t.Context(), "f", tc.opts)
		if err != nil {
			t.Fatal(err)
		}
		if !isPassed(sink.Writer()) {
			t.Errorf("%s: not taken over", name)
		}
		io.WriteString(sink.Writer(), "text")
		if _, err := sink.Commit(t.Context(), sandbox.Commit{Bytes: tc.bytes}); sandbox.KindOf(err) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLiarsAreToldSo: P11.19. A server that hands over what it should not has its
// transfer aborted; nothing is asked for a second time.
func TestLiarsAreToldSo(t *testing.T) {
	table := transfer.NewTable(transfer.Config{})
	var asked atomic.Int64
	st, sb := newPassing(t, func(c *server.Config, _ sandbox.Backend) {
		c.Transfers = table
		c.ServeData = func(_ context.Context, conn net.Conn, _ any) {
			defer conn.Close()
			asked.Add(1)
			if _, err := io.ReadFull(conn, make([]byte, 51)); err == nil {
				io.WriteString(conn, "FD\n")
			}
		}
	})
	st.put(t, "f", "text")
	for i := range 100 { // more than there are places
		_, err := sb.OpenRead(t.Context(), "f", sandbox.ReadOptions{})
		wantKind(t, err, sandbox.KindInternal)
		_, err = sb.OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
		wantKind(t, err, sandbox.KindInternal)
		if n := asked.Load(); n != int64(2*(i+1)) || table.Live() != 0 {
			t.Fatalf("asked %d times, %d transfers live", n, table.Live())
		}
	}
	// With a digest there is nothing to ask for.
	_, err := sb.OpenRead(t.Context(), "f", sandbox.ReadOptions{Digest: true})
	wantKind(t, err, sandbox.KindConnectionLost)
	_, err = sb.OpenWrite(t.Context(), "f", sandbox.WriteOptions{Digest: true})
	wantKind(t, err, sandbox.KindConnectionLost)
}

// committer tells of a commit before it is done.
type committer struct {
	sandbox.Backend
	commits func()
}

func (c *committer) OpenWrite(ctx context.Context, path string, o sandbox.WriteOptions) (sandbox.Sink, error) {
	k, err := c.Backend.OpenWrite(ctx, path, o)
	return toldSink{k, c}, err
}

type toldSink struct {
	sandbox.Sink
	c *committer
}

func (k toldSink) Commit(ctx context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	k.c.commits()
	return k.Sink.Commit(ctx, c)
}

// TestClosedBeforeItsName: P11.16. Nobody has a new version open for writing when
// it gets its name, or a program could not be started.
func TestClosedBeforeItsName(t *testing.T) {
	told := &committer{}
	_, sb := newPassing(t, func(c *server.Config, b sandbox.Backend) {
		told.Backend = b
		c.Host = host{told}
	})
	sink, err := sb.OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
	if err != nil || !isPassed(sink.Writer()) {
		t.Fatalf("not taken over, %v", err)
	}
	told.commits = func() {
		if _, err := sink.Writer().Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%v while it is committed", err)
		}
	}
	if _, err := sink.Commit(t.Context(), sandbox.Commit{}); err != nil {
		t.Fatal(err)
	}
}

// TestAsksNobodyWhoDoesNotOffer: P11.20.
func TestAsksNobodyWhoDoesNotOffer(t *testing.T) {
	said := make(chan string, 1)
	st := newStageWith(t, "unix://"+filepath.Join(t.TempDir(), "s"), func(c *server.Config, _ sandbox.Backend) {
		c.ServeData = func(_ context.Context, conn net.Conn, _ any) {
			defer conn.Close()
			preamble := make([]byte, 51)
			io.ReadFull(conn, preamble)
			said <- string(preamble[:7])
		}
	})
	st.put(t, "f", "text")
	sb := connect(t, adapter.Options{Control: st.addr.String(), PassFiles: true})
	_, err := sb.OpenRead(t.Context(), "f", sandbox.ReadOptions{})
	wantKind(t, err, sandbox.KindConnectionLost)
	if magic := <-said; magic != "CTRLD1 " {
		t.Errorf("asked by %q", magic)
	}
}

// TestSilenceIsWaitedForApart: a server that never answers holds up whoever asks
// until that gives up.
func TestSilenceIsWaitedForApart(t *testing.T) {
	came := make(chan struct{}, 2)
	st, sb := newPassing(t, func(c *server.Config, _ sandbox.Backend) {
		c.ServeData = func(_ context.Context, conn net.Conn, _ any) {
			defer conn.Close()
			io.ReadFull(conn, make([]byte, 51))
			came <- struct{}{}
			conn.Read(make([]byte, 1))
		}
	})
	st.put(t, "f", "text")
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-came
			cancel()
		}()
		_, err := sb.OpenRead(ctx, "f", sandbox.ReadOptions{})
		wantKind(t, err, sandbox.KindCancelled)
	}
}
