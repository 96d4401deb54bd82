package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/work"
)

// recorder is a backend that notes what reaches it.
type recorder struct {
	mu   sync.Mutex
	seen map[string]any // options by method
	path string
}

func (r *recorder) note(method, path string, opts any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[method], r.path = opts, path
}

func (r *recorder) Info(context.Context) (sandbox.Info, error) {
	return sandbox.Info{Cwd: "/cwd", Epoch: "e", Limits: sandbox.DefaultLimits(), Capabilities: []string{sandbox.CapExec, sandbox.CapKeys}, Tree: "cgroup"}, nil
}

func (r *recorder) ReadFile(_ context.Context, path string, o sandbox.ReadOptions) (string, error) {
	r.note("read", path, o)
	return "text", nil
}

func (r *recorder) ReadFileBuffer(_ context.Context, path string, o sandbox.ReadOptions) (sandbox.FileContent, error) {
	r.note("read", path, o)
	return sandbox.FileContent{Data: []byte("text"), Size: 4, ETag: "tag"}, nil
}

func (r *recorder) WriteFile(_ context.Context, path string, c []byte, o sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	r.note("write_file", path, o)
	return sandbox.WriteInfo{Bytes: int64(len(c)), ETag: "tag", Atomic: false}, nil
}

func (r *recorder) Stat(_ context.Context, path string, o sandbox.StatOptions) (sandbox.FileStat, error) {
	r.note("stat", path, o)
	return sandbox.FileStat{Type: sandbox.TypeOther}, nil
}

func (r *recorder) ReadDir(_ context.Context, path string, o sandbox.ReadDirOptions) (sandbox.Listing, error) {
	r.note("readdir", path, o)
	return sandbox.Listing{Names: []string{"z\xff"}, More: true}, nil
}

func (r *recorder) Exists(_ context.Context, path string, o sandbox.ExistsOptions) (bool, error) {
	r.note("exists", path, o)
	return true, nil
}

func (r *recorder) Mkdir(_ context.Context, path string, o sandbox.MkdirOptions) error {
	r.note("mkdir", path, o)
	return nil
}

func (r *recorder) Rm(_ context.Context, path string, o sandbox.RmOptions) error {
	r.note("rm", path, o)
	return nil
}

func (r *recorder) Exec(_ context.Context, command string, o sandbox.ExecOptions) (sandbox.ShellResult, error) {
	o.Grow = nil // the server's own
	r.note("exec", command, o)
	return shellResult(), nil
}

func (r *recorder) ReadFileStream(ctx context.Context, path string, o sandbox.ReadOptions) (*sandbox.ReadStream, error) {
	return sandbox.OpenStream(ctx, r, path, o)
}

func (r *recorder) WriteFileStream(ctx context.Context, path string, in io.Reader, o sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	return sandbox.WriteStream(ctx, r, path, in, o)
}

func (r *recorder) OpenRead(_ context.Context, path string, o sandbox.ReadOptions) (sandbox.Source, error) {
	r.note("open_read", path, o)
	return &memorySource{bytes.NewReader([]byte("text"))}, nil
}

func (r *recorder) OpenWrite(_ context.Context, path string, o sandbox.WriteOptions) (sandbox.Sink, error) {
	r.note("open_write", path, o)
	return &memorySink{r: r}, nil
}

// memorySource yields "text" with a verdict in which everything is set.
type memorySource struct{ r *bytes.Reader }

func (m *memorySource) Size() (int64, bool)   { return 9, true }
func (m *memorySource) Length() (int64, bool) { return 4, true }
func (m *memorySource) ETag() string          { return "tag" }
func (m *memorySource) Reader() io.Reader     { return m.r }
func (m *memorySource) Close() error          { return nil }
func (m *memorySource) Finish(int64) (sandbox.ReadVerdict, error) {
	return sandbox.ReadVerdict{Changed: true, SHA256: "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"}, nil
}

type memorySink struct {
	bytes.Buffer
	r *recorder
}

func (m *memorySink) Writer() io.Writer { return &m.Buffer }
func (m *memorySink) Commit(_ context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	m.r.note("commit", "", c)
	return sandbox.WriteInfo{Bytes: c.Bytes, ETag: "tag", Atomic: true}, nil
}
func (m *memorySink) Abort(cause error) error { return cause }

func shellResult() sandbox.ShellResult {
	return sandbox.ShellResult{Stdout: []byte("o\xff"), Stderr: []byte("e"), ExitCode: 137, Signal: "KILL", Reason: sandbox.ReasonSignaled,
		StdoutOmitted: 3, StderrOmitted: 4, Background: true, KillPending: true, Duration: 1500 * time.Microsecond}
}

// anybody is a server.Host without a door.
type anybody struct{ b sandbox.Backend }

func (h anybody) Open(ctx context.Context, hello rpc.HelloParams, _ server.Visitor) (*server.Session, error) {
	info, err := h.b.Info(ctx)
	return &server.Session{Tenant: "t", Sandbox: hello.Sandbox, Backend: h.b, Info: info, Epoch: info.Epoch}, err
}

// hop serves b on loopback and returns what an adapter sees there.
func hop(t *testing.T, b sandbox.Backend) *adapter.Sandbox {
	t.Helper()
	a, err := adapter.New(adapter.Options{Control: served(t, b), Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// served serves b on loopback until the test ends and returns where.
func served(t *testing.T, b sandbox.Backend) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "tcp://" + ln.Addr().String()
	keys, err := work.NewKeys(work.KeysConfig{})
	if err != nil {
		t.Fatal(err)
	}
	srv := server.New(server.Config{Host: anybody{b}, Keys: keys, DataURLs: func(net.Addr) []string { return []string{url} }})
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(context.Background(), ln, server.Control|server.Data) })
	t.Cleanup(func() {
		srv.Close()
		serving.Wait()
		keys.Close()
	})
	return url
}

// filled returns options in which no field is zero, so that one that is
// forgotten on the way shows. Fields named in zero stay so.
func filled[T any](t *testing.T, zero ...string) T {
	t.Helper()
	var v T
	rv := reflect.ValueOf(&v).Elem()
next:
	for i := range rv.NumField() {
		name := rv.Type().Field(i).Name
		for _, z := range zero {
			if z == name {
				continue next
			}
		}
		switch f := rv.Field(i).Addr().Interface().(type) {
		case *string:
			*f = "value of " + name
			if name == "RequestKey" {
				*f = uuid.NewString()
			}
		case *bool:
			*f = true
		case *int:
			*f = 2
		case *int64:
			*f = 3
		case *[]byte:
			*f = []byte("in\xff")
		case *time.Duration:
			*f = 90 * time.Second
		case *map[string]string:
			*f = map[string]string{"A": "x\ny"}
		case *sandbox.Optional[int64]:
			*f = sandbox.Some(int64(4))
		case *sandbox.Optional[uint32]:
			*f = sandbox.Some(uint32(0o640))
		case *sandbox.Optional[time.Duration]:
			*f = sandbox.Some(250 * time.Millisecond)
		default:
			t.Fatalf("%T.%s has no value here yet", v, name)
		}
	}
	return v
}

// TestEveryParameterPassesTwoHops calls every method with every option set.
// P14.13.
func TestEveryParameterPassesTwoHops(t *testing.T) {
	r := &recorder{seen: map[string]any{}}
	b := hop(t, hop(t, r))
	ctx := t.Context()
	const path = "p\xff/ä"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]any{}
	check := func(method string) {
		t.Helper()
		if got := r.seen[method]; !reflect.DeepEqual(got, want[method]) {
			t.Errorf("%s got %+v\nwant %+v", method, got, want[method])
		}
		if method != "exec" && method != "commit" && r.path != path {
			t.Errorf("%s got path %q", method, r.path)
		}
	}
	same := func(name string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: result %+v\nwant %+v", name, got, want)
		}
	}

	stat := filled[sandbox.StatOptions](t)
	st, err := b.Stat(ctx, path, stat)
	must(err)
	want["stat"] = stat
	check("stat")
	same("stat", st, sandbox.FileStat{Type: sandbox.TypeOther})

	dir := filled[sandbox.ReadDirOptions](t)
	l, err := b.ReadDir(ctx, path, dir)
	must(err)
	want["readdir"] = dir
	check("readdir")
	same("readdir", l, sandbox.Listing{Names: []string{"z\xff"}, More: true})

	exists := filled[sandbox.ExistsOptions](t)
	_, err = b.Exists(ctx, path, exists)
	must(err)
	want["exists"] = exists
	check("exists")

	mkdir := filled[sandbox.MkdirOptions](t)
	must(b.Mkdir(ctx, path, mkdir))
	want["mkdir"] = mkdir
	check("mkdir")

	rm := filled[sandbox.RmOptions](t)
	must(b.Rm(ctx, path, rm))
	want["rm"] = rm
	check("rm")

	exec := filled[sandbox.ExecOptions](t, "Grow")
	res, err := b.Exec(ctx, "command", exec)
	must(err)
	want["exec"] = exec
	check("exec")
	same("exec", res, shellResult())

	write := filled[sandbox.WriteOptions](t, "Size", "Parents", "Digest") // those of streams
	info, err := b.WriteFile(ctx, path, []byte("c\xff"), write)
	must(err)
	want["write_file"] = write
	check("write_file")
	same("write_file", info, sandbox.WriteInfo{Bytes: 2, ETag: "tag"})

	stream := filled[sandbox.WriteOptions](t)
	info, err = sandbox.WriteStream(ctx, b, path, bytes.NewReader([]byte("text")), stream)
	must(err)
	same("write_file_stream", info, sandbox.WriteInfo{Bytes: 4, ETag: "tag", Atomic: true})
	want["open_write"] = stream
	if got := r.seen["open_write"]; !reflect.DeepEqual(got, stream) {
		t.Errorf("open_write got %+v\nwant %+v", got, stream)
	}
	want["commit"] = sandbox.Commit{Bytes: 4, SHA256: "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"}
	check("commit")

	read := filled[sandbox.ReadOptions](t, "InlineMax") // an adapter's own
	s, err := b.ReadFileStream(ctx, path, read)
	must(err)
	defer s.Close()
	text, err := io.ReadAll(s)
	must(err)
	want["open_read"] = read
	check("open_read")
	size, known := s.Size()
	same("read_file_stream", fmt.Sprint(string(text), size, known, s.ETag(), s.Verdict().Changed), "text9 truetagtrue")

	buffered := filled[sandbox.ReadOptions](t, "InlineMax", "IfMatch", "Digest", "RequestKey")
	c, err := b.ReadFileBuffer(ctx, path, buffered)
	must(err)
	same("read_file_buffer", string(c.Data)+c.ETag, "texttag")
	got, ok := r.seen["open_read"].(sandbox.ReadOptions)
	if !ok {
		got = r.seen["read"].(sandbox.ReadOptions)
	}
	got.InlineMax = sandbox.Optional[int64]{}
	same("read_file_buffer's options", got, buffered)

	far, err := b.Info(ctx)
	must(err)
	same("info", []any{far.Cwd, far.Epoch, far.Tree, far.Limits, far.Tenant}, []any{"/cwd", "e", "cgroup", sandbox.DefaultLimits(), "t"})
}
