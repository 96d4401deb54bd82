package bwrap

import (
	"bufio"
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
)

// files are what a start hands over, and this side of the status.
type files struct {
	log, socket, args, status, filter *os.File
	started                           *os.File
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
func (f *files) handed() []*os.File { return []*os.File{f.socket, f.args, f.status, f.filter} }

// close closes all. It may be called twice.
func (f *files) close() {
	for _, one := range append(f.handed(), f.log, f.started) {
		one.Close() // nil is no harm
	}
}

// first waits for bubblewrap to say which process is the sandbox's first.
func (f *files) first(ctx context.Context) (*launch.Process, error) {
	defer context.AfterFunc(ctx, func() { f.started.Close() })()
	line, err := bufio.NewReader(f.started).ReadBytes('\n')
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	var status struct {
		PID int `json:"child-pid"`
	}
	if err := json.Unmarshal(line, &status); err != nil || status.PID <= 0 {
		return nil, fmt.Errorf("bubblewrap says %q", line)
	}
	return launch.Hold(status.PID)
}
