package goals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// matrix is G4: a system call of the daemon fails in the middle of an
// operation.
func matrix(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G4", Promise: "a system call that fails is an error of its kind; nothing breaks, and nothing is left",
		Quick: 300, Lanes: 4,
		Open: opens(g, openMatrix),
		Judge: func(t *proof.Tally) []string {
			if n := t.States["struck"]; n*2 < t.Tries {
				return []string{fmt.Sprintf("%d of %d calls failed, must be half", n, t.Tries)}
			}
			return nil
		},
	}
}

func openMatrix(ctx context.Context, g *ground.Ground) (*matrixed, error) {
	m := &matrixed{stands(g)}
	dir, err := g.Dir()
	if err != nil {
		return m, err
	}
	return m, canTrace(ctx, dir)
}

// matrixed has daemons whose system calls fail.
type matrixed struct{ *pool[*stand] }

// file is what the operations work on; those that change something are tried
// with an old version and a new one.
const (
	olderText = "the older text"
	newerText = "a newer one, which is longer"
)

// operated is an operation, with the system calls that it makes.
type operated struct {
	name  string
	calls []string
	do    func(ctx context.Context, b *adapter.Sandbox) error
}

var walk = []string{"openat", "fstat", "fstatfs"}

// operations are those of the matrix.
var operations = []operated{
	{"read_file", walk, func(ctx context.Context, b *adapter.Sandbox) error {
		c, err := b.ReadFileBuffer(ctx, "f", sandbox.ReadOptions{})
		return orWrong(err, string(c.Data) == olderText)
	}},
	{"read_file_stream", walk, func(ctx context.Context, b *adapter.Sandbox) error {
		got, err := readAll(ctx, b, "f")
		return orWrong(err, string(got) == olderText)
	}},
	{"write_file", append([]string{"fchmod", "linkat", "renameat", "utimensat", "readlinkat", "pwrite64"}, walk...), func(ctx context.Context, b *adapter.Sandbox) error {
		_, err := b.WriteFile(ctx, "f", []byte(newerText), sandbox.WriteOptions{})
		return err
	}},
	{"write_file_stream", append([]string{"fsync", "fchmod", "linkat", "renameat", "fallocate", "splice", "pipe2", "utimensat"}, walk...), func(ctx context.Context, b *adapter.Sandbox) error {
		_, err := b.WriteFileStream(ctx, "f", bytes.NewReader([]byte(newerText)), sandbox.WriteOptions{Sync: true, Size: sandbox.Some(int64(len(newerText)))})
		return err
	}},
	{"stat", walk, func(ctx context.Context, b *adapter.Sandbox) error {
		st, err := b.Stat(ctx, "f", sandbox.StatOptions{})
		return orWrong(err, st.Size.Value == int64(len(olderText)))
	}},
	{"readdir", []string{"openat", "getdents64"}, func(ctx context.Context, b *adapter.Sandbox) error {
		l, err := b.ReadDir(ctx, "d", sandbox.ReadDirOptions{})
		return orWrong(err, slices.Equal(l.Names, []string{"x"}))
	}},
	{"mkdir", []string{"openat", "mkdirat", "fstat"}, func(ctx context.Context, b *adapter.Sandbox) error {
		return b.Mkdir(ctx, "new", sandbox.MkdirOptions{})
	}},
	{"rm", []string{"openat", "newfstatat", "unlinkat"}, func(ctx context.Context, b *adapter.Sandbox) error {
		return b.Rm(ctx, "victim", sandbox.RmOptions{})
	}},
	{"exec", []string{"openat", "pipe2", "clone3", "prlimit64", "pwrite64", "personality"}, func(ctx context.Context, b *adapter.Sandbox) error {
		res, err := b.Exec(ctx, "echo $((6*7))", sandbox.ExecOptions{})
		return orWrong(err, string(res.Stdout) == "42\n" && res.ExitCode == 0)
	}},
}

// errWrong is a success with a wrong result.
var errWrong = errors.New("a success with a wrong result")

func orWrong(err error, right bool) error {
	if err == nil && !right {
		return errWrong
	}
	return err
}

// errnos have kinds of their own, or are internal errors.
var errnos = []string{"EIO", "ENOSPC", "EACCES", "EPERM", "ENOMEM", "EMFILE", "ENFILE", "EROFS", "EDQUOT", "EBUSY"}

// Try implements [proof.Prover].
func (m *matrixed) Try(ctx context.Context, p *proof.Point) error {
	op := operations[p.Rand.IntN(len(operations))]
	in := injection{op.calls[p.Rand.IntN(len(op.calls))], errnos[p.Rand.IntN(len(errnos))], 1 + p.Rand.IntN(2)}
	u, err := m.take(ctx)
	if err != nil {
		return err
	}
	defer m.give(u)
	b, err := u.daemon.Client(adapter.Options{RetryFor: time.Second})
	if err != nil {
		return err
	}
	defer b.Close()
	if err := furnish(u.place.Cwd()); err != nil {
		return err
	}
	if _, err := b.Info(ctx); err != nil {
		return err
	}
	t, err := inject(ctx, u.daemon, filepath.Join(filepath.Dir(u.place.State()), "trace"), in)
	if err != nil {
		return err
	}
	err = op.do(ctx, b)
	struck, line := t.detach()
	p.Fault(op.name)
	m.judge(ctx, p, u, op, in, struck, line, err)
	return m.probe(ctx, p, u, line)
}

// probe sees that the daemon still serves, and starts another where it does not.
func (m *matrixed) probe(ctx context.Context, p *proof.Point, u *stand, line string) error {
	b, err := u.daemon.Client(noOptions)
	if err != nil {
		return err
	}
	defer b.Close()
	if err = b.Ping(ctx); err == nil {
		return nil
	}
	p.Violate("behind %s the daemon is not there: %v: %s", line, err, u.daemon.Log())
	u.daemon.Stop()
	u.daemon, err = u.place.Start(ctx)
	return err
}

// furnish puts everything in its place.
func furnish(cwd string) error {
	os.Remove(filepath.Join(cwd, "new"))
	return errors.Join(put(filepath.Join(cwd, "f"), []byte(olderText)), put(filepath.Join(cwd, "victim"), nil), put(filepath.Join(cwd, "d", "x"), nil))
}

// judge compares what was said with what is expected and with what is there.
func (m *matrixed) judge(ctx context.Context, p *proof.Point, u *stand, op operated, in injection, struck bool, line string, err error) {
	what := fmt.Sprintf("%s, %s fails with %s at %d (%s)", op.name, in.call, in.errno, in.when, line)
	switch kind := sandbox.KindOf(err); {
	case errors.Is(err, errWrong):
		p.Violate("%s: %v", what, err)
	case !struck && err != nil:
		p.Violate("%s: nothing failed, and it said %v", what, err)
	case !struck:
		p.State("not reached")
	case err == nil:
		p.State("struck")
		p.State("done all the same: " + in.call)
	default:
		p.State("struck")
		p.State("kind " + string(kind))
		if !slices.Contains(kindsOf(in), kind) {
			p.Violate("%s: kind %s, want one of %s: %v", what, kind, kindsOf(in), err)
		}
	}
	m.look(ctx, p, u, op, what, err)
}

// kindsOf are the kinds that an error may have: that of its number, or of what
// the call was for.
func kindsOf(in injection) []sandbox.Kind {
	kinds := []sandbox.Kind{sandbox.KindInternal}
	if no, ok := numbers[in.errno]; ok {
		kinds = append(kinds, sandbox.FromErrno("", "", no).Kind)
	}
	switch in.call {
	case "clone3", "prlimit64", "personality":
		kinds = append(kinds, sandbox.KindStartFailed)
	case "pwrite64":
		kinds = append(kinds, sandbox.KindResourceExhausted)
	}
	return kinds
}

// look sees that the file is a version, and the right one, and that nothing is
// left.
func (m *matrixed) look(ctx context.Context, p *proof.Point, u *stand, op operated, what string, err error) {
	versions := map[string]string{"old": check.Digest([]byte(olderText)), "new": check.Digest([]byte(newerText))}
	version, verr := check.Version(filepath.Join(u.place.Cwd(), "f"), versions)
	writes := op.name == "write_file" || op.name == "write_file_stream"
	switch {
	case verr != nil:
		p.Violate("%s: %v", what, verr)
	case writes && err == nil && version != "new", writes && err != nil && !open(err) && version != "old", !writes && version != "old":
		p.Violate("%s: the file is the %s one, and it said %v", what, version, err)
	}
	_, missing := os.Lstat(filepath.Join(u.place.Cwd(), "victim"))
	if _, made := os.Lstat(filepath.Join(u.place.Cwd(), "new")); err != nil && !open(err) && (made == nil || missing != nil) {
		p.Violate("%s: it was done, and it said %v", what, err)
	}
	left := check.Eventually(ctx, func() error {
		if n := check.Temps(u.daemon.PID(), u.place.Cwd(), "f", "d", "victim", "new"); n > 0 {
			return fmt.Errorf("%d temps are left", n)
		}
		return nil
	})
	if left != nil {
		p.Violate("%s: %v", what, left)
	}
}
