package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	runc "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/cgroup"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
	"github.com/controld/controld/sandboxhost/driver/image"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// Name is the driver's name.
const Name = "oci"

// Driver starts sandboxes by an OCI runtime.
type Driver struct {
	// Runtime is the program; "runc" where empty.
	Runtime string
	// CgroupParent is the cgroup below which each sandbox has its own, a path
	// such as /sandboxes; the top where empty.
	CgroupParent string
	Agent        launch.Agent
	// Images has the roots of images; without it there are none.
	Images *image.Store
}

var _ sandboxhost.Driver = Driver{}

// Name implements [sandboxhost.Driver].
func (Driver) Name() string { return Name }

// Start implements [sandboxhost.Driver].
func (d Driver) Start(ctx context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	if err := d.supports(spec); err != nil {
		return nil, err
	}
	if err := launch.Own(spec.Dir, spec.IDs.Base+hostroot.UID, spec.IDs.Base+hostroot.GID); err != nil {
		return nil, sandbox.AsError("start", "", err)
	}
	if err := d.prepare(spec); err != nil {
		return nil, sandbox.AsError("start", "", err)
	}
	root := ""
	if spec.Box.Image != "" {
		var err error
		if root, err = d.Images.Root(ctx, spec.Box.Image); err != nil {
			return nil, &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Message: err.Error(), Err: err}
		}
	}
	i, err := d.start(ctx, spec, root)
	if err != nil {
		return nil, errors.Join(startFailed(spec.Run, err), d.clear(context.WithoutCancel(ctx), spec))
	}
	return i, nil
}

// prepare makes the directories of the agent's, who is root of the sandbox's
// users where it is not the workload's.
func (d Driver) prepare(spec sandboxhost.Spec) error {
	agent := spec.IDs.Base + hostroot.UID
	if d.Agent.Apart {
		agent = spec.IDs.Base
		if err := launch.MakeState(spec.State, agent, agent); err != nil {
			return err
		}
	}
	if d.handsOver() {
		return nil
	}
	return launch.MakeLink(spec.Run, agent, agent)
}

// supports refuses what the driver cannot hold.
func (d Driver) supports(spec sandboxhost.Spec) error {
	box := spec.Box
	switch {
	case spec.IDs.Base == 0:
		return sandboxhost.Unsupported("start", "the oci driver needs root")
	case box.Image != "" && d.Images == nil:
		return sandboxhost.Unsupported("start", "this oci driver has no store of images")
	case d.isGVisor() && box.Processes != 0:
		// Those of gVisor's kernel are threads of one process of the host's.
		return sandboxhost.Unsupported("start", "the oci driver bounds no processes of gVisor's")
	case d.isGVisor() && box.Network == sandboxhost.NetworkHost:
		return sandboxhost.Unsupported("start", "the oci driver gives gVisor no network")
	case !box.Network.Known():
		return sandboxhost.Unsupported("start", "the oci driver has no network %q", box.Network)
	}
	return nil
}

// start returns when the agent listens. root is the image's, if any.
func (d Driver) start(ctx context.Context, spec sandboxhost.Spec, root string) (*instance, error) {
	var first *launch.Process
	err := launch.Private(func() error {
		var err error
		first, err = d.run(ctx, spec, root)
		return err
	})
	if err != nil {
		return nil, err
	}
	i := newInstance(d, spec, first)
	if d.handsOver() {
		return i, nil
	}
	if err := launch.KeepSocket(ctx, spec.Run, i.done); err != nil {
		return nil, errors.Join(err, i.Stop())
	}
	return i, nil
}

// run makes the bundle and has the runtime start it. It runs in a mount
// namespace of its own: the container's users may not go through the host's
// directories, so all that it is made of is seen from a stage.
func (d Driver) run(ctx context.Context, spec sandboxhost.Spec, root string) (*launch.Process, error) {
	sources := map[string]string{"workspace": spec.Dir, "agent": d.Agent.Path}
	if !d.handsOver() {
		sources["link"] = launch.LinkDir(spec.Run)
	}
	if d.Agent.Apart {
		sources["state"] = spec.State
	}
	at, err := launch.Stage(sources)
	if err == nil && d.wantsOneVersion() {
		err = hideUnified()
	}
	if err == nil {
		err = d.makeRoot(spec, root, at)
	}
	if err == nil {
		err = writeConfig(spec, d, at)
	}
	if err != nil {
		return nil, err
	}
	log, err := launch.Log(spec.Run)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	pidFile := filepath.Join(spec.Run, "pid")
	options := &runc.CreateOpts{IO: logged{log}, PidFile: pidFile, Detach: true}
	if d.handsOver() {
		socket, err := launch.Listen(spec.Run)
		if err != nil {
			return nil, err
		}
		defer socket.Close()
		options.ExtraFiles = []*os.File{socket}
	}
	if _, err := d.runtime(spec).Run(ctx, spec.ID, spec.Run, options); err != nil {
		return nil, err
	}
	return holdFirst(pidFile, spec.Run)
}

// holdFirst takes hold of the container's first process and writes it down.
func holdFirst(pidFile, run string) (*launch.Process, error) {
	pid, err := runc.ReadPidFile(pidFile)
	if err != nil {
		return nil, err
	}
	first, err := launch.Hold(pid)
	if err != nil {
		return nil, err
	}
	if err := first.Record(run); err != nil {
		first.Close()
		return nil, err
	}
	return first, nil
}

// runtime is the runtime with the state of one instance.
func (d Driver) runtime(spec sandboxhost.Spec) *runc.Runc {
	command := d.Runtime
	if command == "" {
		command = runc.DefaultCommand
	}
	r := &runc.Runc{Command: command, Root: filepath.Join(spec.Run, "runtime")}
	if d.isGVisor() {
		// A network that leads nowhere is less work than one of its own, and
		// the agent's socket is the one that the host shall see.
		r.ExtraArgs = []string{"--host-uds=create", "--network=none"}
		if spec.Box.Memory == 0 && spec.Box.CPUs == 0 {
			r.ExtraArgs = append(r.ExtraArgs, "--ignore-cgroups")
		}
	}
	return r
}

// isGVisor tells whether the runtime is runsc, whose containers have a kernel of
// their own.
func (d Driver) isGVisor() bool { return strings.HasPrefix(filepath.Base(d.Runtime), "runsc") }

// handsOver tells whether descriptors can be handed to what runs in a container,
// and by it.
func (d Driver) handsOver() bool { return !d.isGVisor() }

// with has the runtime do something about an instance. crun refuses machines
// that have both versions of cgroups, unless it sees but one.
func (d Driver) with(spec sandboxhost.Spec, do func(*runc.Runc) error) error {
	r := d.runtime(spec)
	if !d.wantsOneVersion() {
		return do(r)
	}
	return launch.Private(func() error {
		if err := hideUnified(); err != nil {
			return err
		}
		return do(r)
	})
}

func startFailed(run string, err error) error {
	return &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Message: "OCI runtime: " + launch.Why(run, err), Err: err}
}

// Adopt implements [sandboxhost.Driver].
func (d Driver) Adopt(ctx context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	first, err := launch.Recorded(spec.Run)
	switch {
	case err == nil:
		return newInstance(d, spec, first), nil
	case errors.Is(err, launch.ErrEnded), errors.Is(err, fs.ErrNotExist):
		if err := d.clear(ctx, spec); err != nil {
			return nil, err
		}
		return nil, sandboxhost.ErrGone
	}
	return nil, err
}

// clear removes what is left of an instance that does not run, or whose start
// was broken off.
func (d Driver) clear(ctx context.Context, spec sandboxhost.Spec) error {
	// The runtime itself first: it may still be at work.
	if err := launch.End(spec.ID); err != nil {
		return err
	}
	if err := launch.End(launch.Mark(spec.Secret)); err != nil {
		return err
	}
	return d.remove(ctx, spec)
}

// cgroupTimeout is how long the last processes of a container may take to end
// after they were killed.
const cgroupTimeout = 10 * time.Second

// remove has the runtime forget an instance, whose processes it kills. Of one
// that has ended by itself runtimes leave the cgroup.
func (d Driver) remove(ctx context.Context, spec sandboxhost.Spec) error {
	if err := d.forget(ctx, spec); err != nil {
		return err
	}
	if d.isGVisor() {
		// The process that opens files for the kernel ends by itself behind it,
		// unless it was stopped.
		if err := launch.End(spec.ID); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cgroupTimeout)
	defer cancel()
	return cgroup.Group(d.cgroup(spec)).Remove(ctx)
}

func (d Driver) forget(ctx context.Context, spec sandboxhost.Spec) error {
	if _, err := os.Stat(filepath.Join(spec.Run, "runtime", spec.ID)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := d.with(spec, func(r *runc.Runc) error {
		return r.Delete(ctx, spec.ID, &runc.DeleteOpts{Force: true})
	})
	if err != nil {
		return fmt.Errorf("remove container %s: %w", spec.ID, err)
	}
	return nil
}

// unified is where systems with both versions of cgroups have the second.
const unified = "/sys/fs/cgroup/unified"

// wantsOneVersion tells whether the runtime must not see the second version of
// cgroups beside the first.
func (d Driver) wantsOneVersion() bool {
	if filepath.Base(d.Runtime) != "crun" {
		return false
	}
	var st unix.Statfs_t
	return unix.Statfs(unified, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// hideUnified takes it out of a mount namespace of this thread's own.
func hideUnified() error {
	if err := unix.Unmount(unified, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", unified, err)
	}
	return nil
}
