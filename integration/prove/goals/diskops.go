package goals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/controld/controld/integration/faultfs"
	"github.com/controld/controld/sandbox"
)

// errExit is a command that says by its exit code that it failed.
var errExit = errors.New("the command says that it failed")

// diskOps are what is done to the files with a number.
var diskOps = map[string]func(t *diskTry, ctx context.Context, i int) error{
	"read": func(t *diskTry, ctx context.Context, i int) error {
		c, err := t.b.ReadFileBuffer(ctx, name("f", i), sandbox.ReadOptions{})
		return orWrong(err, bytes.Equal(c.Data, t.older))
	},
	"stream": func(t *diskTry, ctx context.Context, i int) error {
		got, err := readAll(ctx, t.b, name("f", i))
		return orWrong(err, bytes.Equal(got, t.older))
	},
	"write": func(t *diskTry, ctx context.Context, i int) error {
		_, err := t.b.WriteFile(ctx, name("f", i), t.newer, sandbox.WriteOptions{Sync: true})
		return err
	},
	"upload": func(t *diskTry, ctx context.Context, i int) error {
		_, err := t.b.WriteFileStream(ctx, name("f", i), bytes.NewReader(t.newer), sandbox.WriteOptions{Sync: true, Size: sandbox.Some(int64(len(t.newer)))})
		return err
	},
	"stat": func(t *diskTry, ctx context.Context, i int) error {
		st, err := t.b.Stat(ctx, name("f", i), sandbox.StatOptions{})
		return orWrong(err, st.Size.Value == int64(len(t.older)))
	},
	"exists": func(t *diskTry, ctx context.Context, i int) error {
		there, err := t.b.Exists(ctx, name("f", i), sandbox.ExistsOptions{})
		return orWrong(err, there)
	},
	"list": func(t *diskTry, ctx context.Context, i int) error {
		l, err := t.b.ReadDir(ctx, name("d", i), sandbox.ReadDirOptions{})
		return orWrong(err, slices.Equal(l.Names, listed))
	},
	"mkdir": func(t *diskTry, ctx context.Context, i int) error {
		return t.b.Mkdir(ctx, name("new", i), sandbox.MkdirOptions{})
	},
	"rm": func(t *diskTry, ctx context.Context, i int) error {
		return t.b.Rm(ctx, name("victim", i), sandbox.RmOptions{})
	},
	"rm tree": func(t *diskTry, ctx context.Context, i int) error {
		return t.b.Rm(ctx, name("d", i), sandbox.RmOptions{Recursive: true})
	},
	"exec": func(t *diskTry, ctx context.Context, i int) error {
		res, err := t.b.Exec(ctx, "cat "+name("f", i), sandbox.ExecOptions{})
		if err == nil && res.ExitCode != 0 {
			return errExit
		}
		return orWrong(err, bytes.Equal(res.Stdout, t.older))
	},
}

// temps are the names of files before they have their own.
const temps = ".controld-*"

// diskCase is an operation under a fault of one of its calls.
type diskCase struct {
	op    string
	fault faultfs.Fault
	calls int // the fault strikes one of the first so many
	// fails is set where the fault has no number of its own: it gets one.
	fails bool
	// right allows a success, of the right result.
	right bool
}

// diskCases are those in which a disk fails or lies.
var diskCases = []diskCase{
	{op: "read", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*"}, calls: 3, fails: true},
	{op: "stream", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*"}, calls: 3, fails: true},
	{op: "exec", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*"}, calls: 3, fails: true},
	{op: "read", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*", Short: 5000}, calls: 1, right: true},
	{op: "stream", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*", Short: 5000}, calls: 1, right: true},
	{op: "stream", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*", Rate: 20 << 20}, calls: 1, right: true},
	{op: "read", fault: faultfs.Fault{Call: faultfs.Getattr, Name: "f*", Grown: 70}, calls: 3, right: true},
	{op: "stream", fault: faultfs.Fault{Call: faultfs.Getattr, Name: "f*", Grown: 70}, calls: 3, right: true},
	{op: "stat", fault: faultfs.Fault{Call: faultfs.Getattr, Name: "f*"}, calls: 1, fails: true},
	{op: "stat", fault: faultfs.Fault{Call: faultfs.Lookup, Name: "f*"}, calls: 1, fails: true},
	{op: "exists", fault: faultfs.Fault{Call: faultfs.Lookup, Name: "f*"}, calls: 1, fails: true},
	{op: "list", fault: faultfs.Fault{Call: faultfs.Opendir, Name: "d*"}, calls: 1, fails: true},
	{op: "list", fault: faultfs.Fault{Call: faultfs.Readdir, Name: "d*"}, calls: 5, fails: true},
	{op: "mkdir", fault: faultfs.Fault{Call: faultfs.Mkdir}, calls: 1, fails: true},
	{op: "rm", fault: faultfs.Fault{Call: faultfs.Unlink, Name: "victim*"}, calls: 1, fails: true},
	{op: "rm tree", fault: faultfs.Fault{Call: faultfs.Unlink, Name: "x*"}, calls: 4, fails: true},
	{op: "rm tree", fault: faultfs.Fault{Call: faultfs.Rmdir}, calls: 1, fails: true},
	{op: "rm tree", fault: faultfs.Fault{Call: faultfs.Readdir, Name: "d*"}, calls: 4, fails: true},
}

// diskWrites are those of both ways to write.
var diskWrites = []diskCase{
	{fault: faultfs.Fault{Call: faultfs.Create, Name: temps}, calls: 1, fails: true},
	{fault: faultfs.Fault{Call: faultfs.Write, Name: temps}, calls: 3, fails: true},
	{fault: faultfs.Fault{Call: faultfs.Write, Name: temps, Short: 5000}, calls: 1, right: true},
	{fault: faultfs.Fault{Call: faultfs.Write, Name: temps, Rate: 20 << 20}, calls: 1, right: true},
	{fault: faultfs.Fault{Call: faultfs.Write, Name: temps, Drop: true}, calls: 1},
	{fault: faultfs.Fault{Call: faultfs.Allocate, Errno: syscall.EOPNOTSUPP}, calls: 1, right: true},
	{fault: faultfs.Fault{Call: faultfs.Allocate}, calls: 1, fails: true},
	{fault: faultfs.Fault{Call: faultfs.Setattr, Name: temps}, calls: 2, fails: true},
	{fault: faultfs.Fault{Call: faultfs.Fsync, Name: temps, Times: 1}, calls: 1, fails: true},
	{fault: faultfs.Fault{Call: faultfs.Fsync, Name: "default", Times: 1}, calls: 1, fails: true},
	{fault: faultfs.Fault{Call: faultfs.Flush, Name: temps, Times: 1}, calls: 1, fails: true},
	{fault: faultfs.Fault{Call: faultfs.Rename, Name: "f*"}, calls: 1, fails: true},
}

// diskStalls are the calls that operations stand still in.
var diskStalls = []diskCase{
	{op: "read", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*"}},
	{op: "stream", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*"}},
	{op: "read", fault: faultfs.Fault{Call: faultfs.Lookup, Name: "f*"}},
	{op: "stat", fault: faultfs.Fault{Call: faultfs.Getattr, Name: "f*"}},
	{op: "exists", fault: faultfs.Fault{Call: faultfs.Lookup, Name: "f*"}},
	{op: "list", fault: faultfs.Fault{Call: faultfs.Readdir, Name: "d*"}},
	{op: "mkdir", fault: faultfs.Fault{Call: faultfs.Mkdir, Name: "new*"}},
	{op: "rm", fault: faultfs.Fault{Call: faultfs.Unlink, Name: "victim*"}},
	{op: "rm tree", fault: faultfs.Fault{Call: faultfs.Rmdir, Name: "d*"}},
	{op: "upload", fault: faultfs.Fault{Call: faultfs.Write, Name: "default/" + temps}},
	{op: "upload", fault: faultfs.Fault{Call: faultfs.Fsync, Name: "default/" + temps}},
	{op: "upload", fault: faultfs.Fault{Call: faultfs.Rename, Name: "f*"}},
	{op: "write", fault: faultfs.Fault{Call: faultfs.Write, Name: "default/" + temps}},
	{op: "write", fault: faultfs.Fault{Call: faultfs.Rename, Name: "f*"}},
	{op: "exec", fault: faultfs.Fault{Call: faultfs.Read, Name: "f*"}},
	{op: "exec", fault: faultfs.Fault{Call: faultfs.Access, Name: "default"}},
}

// String says in words what happens.
func (c diskCase) String() string {
	return fmt.Sprintf("%s under %s of %q from %d (number %d, short %d, drop %v, grown %d)", c.op, c.fault.Call, c.fault.Name, c.fault.From,
		int(c.fault.Errno), c.fault.Short, c.fault.Drop, c.fault.Grown)
}
