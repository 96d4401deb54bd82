package bwrap

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/launch"
	"github.com/controld/controld/sandboxhost/driver/seccomp"
)

// The descriptors that bubblewrap inherits. It reads or closes all but the
// first, which is the agent's.
const (
	fdSocket = 3 + iota
	fdArgs
	fdStatus
	fdFilter
	fdUsers
)

// files are what a start hands over, and this side of the pipes: what bubblewrap
// says, and what it waits for.
type files struct {
	log, socket, args, status, filter, users *os.File
	started, given                           *os.File
}

// openFiles makes them. Arguments do not stand on the command line, which all
// the host can read.
func openFiles(spec sandboxhost.Spec, args []string) (*files, error) {
	f := &files{}
	program, err := seccomp.Program()
	if err == nil {
		f.log, err = launch.Log(spec.Run)
	}
	if err == nil {
		f.socket, err = launch.Listen(spec.Run)
	}
	if err == nil {
		f.args, err = unnamed(spec.Run, []byte(strings.Join(args, "\x00")+"\x00"))
	}
	if err == nil {
		f.filter, err = unnamed(spec.Run, program)
	}
	if err == nil {
		f.started, f.status, err = os.Pipe()
	}
	if err == nil {
		f.users, f.given, err = os.Pipe()
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// unnamed returns an open file without a name that holds text.
func unnamed(dir string, text []byte) (*os.File, error) {
	f, err := os.CreateTemp(dir, "handed-*")
	if err != nil {
		return nil, err
	}
	os.Remove(f.Name())
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// handed are the files in the order of their descriptors.
func (f *files) handed() []*os.File { return []*os.File{f.socket, f.args, f.status, f.filter, f.users} }

// close closes all. It may be called twice.
func (f *files) close() {
	for _, one := range append(f.handed(), f.log, f.started, f.given) {
		one.Close() // nil is no harm
	}
}

// first waits for bubblewrap to say which process is the sandbox's first.
func (f *files) first(ctx context.Context) (*launch.Process, error) {
	defer context.AfterFunc(ctx, func() { f.started.Close() })()
	var status struct {
		PID int `json:"child-pid"`
	}
	err := json.NewDecoder(f.started).Decode(&status)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("what bubblewrap says: %w", err)
	}
	return launch.Hold(status.PID)
}

// giveUsers gives the first process's namespace its users and has it go on.
func (f *files) giveUsers(first *launch.Process, ids sandboxhost.IDs) error {
	all := fmt.Appendf(nil, "0 %d %d\n", ids.Base, ids.Count)
	for _, kind := range []string{"uid", "gid"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s_map", first.PID(), kind), all, 0); err != nil {
			return err
		}
	}
	_, err := f.given.Write([]byte{1})
	return err
}
