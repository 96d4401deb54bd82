package bwrap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// Name is the driver's name.
const Name = "bwrap"

// Driver starts sandboxes by bubblewrap.
type Driver struct {
	// Program is bubblewrap's; "bwrap" where empty.
	Program string
	Agent   launch.Agent
}

var _ sandboxhost.Driver = Driver{}

// Name implements [sandboxhost.Driver].
func (Driver) Name() string { return Name }

// Start implements [sandboxhost.Driver].
func (d Driver) Start(ctx context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	if err := supports(spec.Box); err != nil {
		return nil, err
	}
	at := place{workspace: spec.Dir, agent: d.Agent.Path, etc: filepath.Join(spec.Run, "etc")}
	if err := writeEtc(at.etc); err != nil {
		return nil, sandbox.AsError("start", "", err)
	}
	if spec.IDs.Base == 0 {
		return d.start(ctx, spec, at)
	}
	// Bubblewrap runs as the sandbox's own user, who may not go through the
	// host's directories.
	var i sandboxhost.Instance
	err := launch.Private(func() error {
		err := launch.Own(at.workspace, spec.IDs.Base+hostroot.UID, spec.IDs.Base+hostroot.GID)
		if err == nil && d.apart(spec) {
			at.state = spec.State
			err = launch.MakeState(at.state, spec.IDs.Base, spec.IDs.Base)
		}
		if err == nil {
			at, err = staged(at)
		}
		if err != nil {
			return sandbox.AsError("start", "", err)
		}
		i, err = d.start(ctx, spec, at)
		return err
	})
	return i, err
}

// staged returns where a place is seen by everybody.
func staged(at place) (place, error) {
	sources := map[string]string{"workspace": at.workspace, "agent": at.agent, "etc": at.etc}
	if at.state != "" {
		sources["state"] = at.state
	}
	dir, err := launch.Stage(sources)
	seen := place{workspace: filepath.Join(dir, "workspace"), agent: filepath.Join(dir, "agent"), etc: filepath.Join(dir, "etc")}
	if at.state != "" {
		seen.state = filepath.Join(dir, "state")
	}
	return seen, err
}

func (d Driver) start(ctx context.Context, spec sandboxhost.Spec, at place) (sandboxhost.Instance, error) {
	files, err := openFiles(spec, d.arguments(spec, at))
	if err != nil {
		return nil, sandbox.AsError("start", "", err)
	}
	defer files.close()
	cmd := d.command(spec, files)
	if err := cmd.Start(); err != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Message: "bubblewrap: " + err.Error(), Err: err}
	}
	files.status.Close() // or its end would not be seen
	first, err := files.first(ctx)
	if err == nil && d.apart(spec) {
		err = files.giveUsers(first, spec.IDs)
	}
	if err == nil {
		err = first.Record(spec.Run)
	}
	if err != nil {
		return nil, giveUp(spec, cmd, first, err)
	}
	return newInstance(spec, first, cmd), nil
}

// apart tells whether the agent is another user than the workload. That needs
// more users than one.
func (d Driver) apart(spec sandboxhost.Spec) bool { return d.Agent.Apart && spec.IDs.Base != 0 }

// changeable are what a sandbox may write in beside its own directories, once
// more by Landlock where the kernel has that: a mount too many, or one that is
// not read-only, is no way out.
var changeable = []string{"/tmp", "/dev/shm", "/dev/pts", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/proc"}

func (d Driver) command(spec sandboxhost.Spec, f *files) *exec.Cmd {
	program := d.Program
	if program == "" {
		program = "bwrap"
	}
	cmd := exec.Command(program, "--args", fmt.Sprint(fdArgs), "--")
	more, own := []string{}, hostroot.UID
	writable := slices.Concat(changeable, []string{hostroot.Workspace})
	if d.apart(spec) {
		more, own = launch.As(hostroot.UID, hostroot.GID, 0, hostroot.State), 0
		writable = append(writable, hostroot.State)
	}
	more = append(more, "--confine="+strings.Join(writable, ","))
	cmd.Args = append(cmd.Args, d.Agent.Inside(hostroot.Agent, hostroot.Workspace, launch.HandedURL, spec.Secret, more...)...)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdout, cmd.Stderr = f.log, f.log
	cmd.ExtraFiles = f.handed()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's ^C is not for it
	if base := spec.IDs.Base; base != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(base + own), Gid: uint32(base + own)}
	}
	return cmd
}

// giveUp ends what a start that failed has begun and says why it failed.
func giveUp(spec sandboxhost.Spec, cmd *exec.Cmd, first *launch.Process, err error) error {
	if first != nil {
		first.Kill()
		first.Close()
	}
	cmd.Process.Kill()
	cmd.Wait()
	return startFailed(spec.Run, err)
}

func startFailed(run string, err error) error {
	return &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Message: "bubblewrap: " + launch.Why(run, err), Err: err}
}

// Adopt implements [sandboxhost.Driver].
func (d Driver) Adopt(_ context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	first, err := launch.Recorded(spec.Run)
	switch {
	case err == nil:
		return newInstance(spec, first, nil), nil
	case errors.Is(err, launch.ErrEnded), errors.Is(err, fs.ErrNotExist):
		if err := launch.End(launch.Mark(spec.Secret)); err != nil {
			return nil, err
		}
		return nil, sandboxhost.ErrGone
	}
	return nil, err
}

// supports refuses what bubblewrap cannot hold.
func supports(box sandboxhost.Box) error {
	switch {
	case box.Image != "":
		return sandboxhost.Unsupported("start", "the bwrap driver has no images")
	case box.Memory != 0 || box.Processes != 0 || box.CPUs != 0:
		return sandboxhost.Unsupported("start", "the bwrap driver bounds no memory, processes or processors")
	case !box.Network.Known():
		return sandboxhost.Unsupported("start", "the bwrap driver has no network %q", box.Network)
	}
	return nil
}
