package sandboxhost

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/controld/controld/fair"
	"github.com/controld/controld/sandbox"
)

// Quotas bound one tenant. Zero fields take the defaults.
type Quotas struct {
	// Connections open at once on the control plane (1,024).
	Connections int
	// Calls that run at once (1,024).
	Calls int
	// Execs are commands that run at once (512).
	Execs int
	// BytesPerSecond is what its transfers move in all; zero means no bound.
	BytesPerSecond int64
}

func (q *Quotas) fill() {
	if q.Connections <= 0 {
		q.Connections = 1024
	}
	if q.Calls <= 0 {
		q.Calls = 1024
	}
	if q.Execs <= 0 {
		q.Execs = 512
	}
}

// gauge counts up to a bound.
type gauge struct {
	what string
	most int

	mu  sync.Mutex
	now int
}

// take counts one more, or says what is exhausted.
func (g *gauge) take(op string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now >= g.most {
		return &sandbox.Error{Kind: sandbox.KindResourceExhausted, Op: op, Message: "too many " + g.what + " at once",
			Limit: sandbox.Some(int64(g.most)), RetryAfter: time.Second}
	}
	g.now++
	return nil
}

// bound changes the bound; what is over it goes on.
func (g *gauge) bound(most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = most
}

func (g *gauge) give() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

// bounded is a backend on which a tenant's calls are counted.
type bounded struct {
	sandbox.Backend
	life         *life
	calls, execs *gauge
	births       *fair.Gate
}

// counted runs one call of a bounded backend.
func counted[T any](b *bounded, op string, call func() (T, error)) (T, error) {
	if err := b.calls.take(op); err != nil {
		var zero T
		return zero, err
	}
	defer b.calls.give()
	if !b.life.enter() {
		var zero T
		return zero, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: op, Reason: sandbox.ReasonSandboxRestarted, Outcome: sandbox.OutcomeNone}
	}
	defer b.life.leave()
	if b.life.paused.Load() {
		var zero T
		return zero, pausedError(op)
	}
	v, err := call()
	return v, b.life.explain(err)
}

// ReadFile implements [sandbox.API].
func (b *bounded) ReadFile(ctx context.Context, path string, opts sandbox.ReadOptions) (string, error) {
	return counted(b, "read_file", func() (string, error) { return b.Backend.ReadFile(ctx, path, opts) })
}

// ReadFileBuffer implements [sandbox.API].
func (b *bounded) ReadFileBuffer(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.FileContent, error) {
	return counted(b, "read_file_buffer", func() (sandbox.FileContent, error) { return b.Backend.ReadFileBuffer(ctx, path, opts) })
}

// WriteFile implements [sandbox.API].
func (b *bounded) WriteFile(ctx context.Context, path string, content []byte, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	return counted(b, "write_file", func() (sandbox.WriteInfo, error) { return b.Backend.WriteFile(ctx, path, content, opts) })
}

// Stat implements [sandbox.API].
func (b *bounded) Stat(ctx context.Context, path string, opts sandbox.StatOptions) (sandbox.FileStat, error) {
	return counted(b, "stat", func() (sandbox.FileStat, error) { return b.Backend.Stat(ctx, path, opts) })
}

// ReadDir implements [sandbox.API].
func (b *bounded) ReadDir(ctx context.Context, path string, opts sandbox.ReadDirOptions) (sandbox.Listing, error) {
	return counted(b, "readdir", func() (sandbox.Listing, error) { return b.Backend.ReadDir(ctx, path, opts) })
}

// Exists implements [sandbox.API].
func (b *bounded) Exists(ctx context.Context, path string, opts sandbox.ExistsOptions) (bool, error) {
	return counted(b, "exists", func() (bool, error) { return b.Backend.Exists(ctx, path, opts) })
}

// Mkdir implements [sandbox.API].
func (b *bounded) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	_, err := counted(b, "mkdir", func() (struct{}, error) { return struct{}{}, b.Backend.Mkdir(ctx, path, opts) })
	return err
}

// Rm implements [sandbox.API].
func (b *bounded) Rm(ctx context.Context, path string, opts sandbox.RmOptions) error {
	_, err := counted(b, "rm", func() (struct{}, error) { return struct{}{}, b.Backend.Rm(ctx, path, opts) })
	return err
}

// birthTime is how long a command has a turn: as long as most of them take,
// and long enough for its shell to start. It runs on without.
const birthTime = 10 * time.Millisecond

// Exec implements [sandbox.API]. Commands start in turns, so that one of a
// tenant with few does not wait for all of a tenant with many.
func (b *bounded) Exec(ctx context.Context, command string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	return counted(b, "exec", func() (sandbox.ShellResult, error) {
		if err := b.execs.take("exec"); err != nil {
			return sandbox.ShellResult{}, err
		}
		defer b.execs.give()
		leave, err := b.births.Enter(ctx, b.life.spec.Tenant)
		if err != nil {
			return sandbox.ShellResult{}, sandbox.Cancelled(ctx, "exec", "")
		}
		defer leave()
		defer time.AfterFunc(birthTime, leave).Stop()
		return b.Backend.Exec(ctx, command, opts)
	})
}

// ReadFileStream implements [sandbox.API]. A stream that is open is a
// transfer, which is counted as such.
func (b *bounded) ReadFileStream(ctx context.Context, path string, opts sandbox.ReadOptions) (*sandbox.ReadStream, error) {
	return sandbox.OpenStream(ctx, b, path, opts)
}

// WriteFileStream implements [sandbox.API].
func (b *bounded) WriteFileStream(ctx context.Context, path string, r io.Reader, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	return sandbox.WriteStream(ctx, b, path, r, opts)
}

// OpenRead implements [sandbox.Backend].
func (b *bounded) OpenRead(ctx context.Context, path string, opts sandbox.ReadOptions) (sandbox.Source, error) {
	return counted(b, "read_file_stream", func() (sandbox.Source, error) {
		src, err := b.Backend.OpenRead(ctx, path, opts)
		if err != nil || !b.life.enter() {
			return src, err
		}
		return &usedSource{src, sync.OnceFunc(b.life.leave)}, nil
	})
}

// OpenWrite implements [sandbox.Backend].
func (b *bounded) OpenWrite(ctx context.Context, path string, opts sandbox.WriteOptions) (sandbox.Sink, error) {
	return counted(b, "write_file_stream", func() (sandbox.Sink, error) {
		sink, err := b.Backend.OpenWrite(ctx, path, opts)
		if err != nil || !b.life.enter() {
			return sink, err
		}
		return &usedSink{sink, sync.OnceFunc(b.life.leave)}, nil
	})
}

// usedSource is one whose sandbox is in use until it is closed.
type usedSource struct {
	sandbox.Source
	leave func()
}

func (s *usedSource) Close() error {
	defer s.leave()
	return s.Source.Close()
}

// usedSink is one whose sandbox is in use until it ends.
type usedSink struct {
	sandbox.Sink
	leave func()
}

func (s *usedSink) Commit(ctx context.Context, c sandbox.Commit) (sandbox.WriteInfo, error) {
	defer s.leave()
	return s.Sink.Commit(ctx, c)
}

func (s *usedSink) Abort(cause error) error {
	defer s.leave()
	return s.Sink.Abort(cause)
}
