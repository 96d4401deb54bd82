package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
	"github.com/controld/controld/sandboxhost/driver/launch"
	"github.com/controld/controld/sandboxhost/driver/seccomp"
)

// Name is the driver's name.
const Name = "docker"

// Driver starts sandboxes by a Docker engine. Make it with [New].
type Driver struct {
	engine       *client.Client
	agent        launch.Agent
	cgroupParent string
}

// Options tell a [Driver] where its engine is.
type Options struct {
	// Engine is the URL of its Unix socket, or of one that is elsewhere
	// (tcp://); what DOCKER_HOST says, else the usual place, where empty.
	Engine string
	// CgroupParent is the cgroup below which containers have theirs; the
	// engine's choice where empty.
	CgroupParent string
	Agent        launch.Agent
}

var _ sandboxhost.Driver = (*Driver)(nil)

// Closer is a driver that has connections to an engine.
type Closer interface {
	sandboxhost.Driver
	io.Closer
}

// New returns a driver. The engine is not asked anything yet. The caller closes
// it.
func New(o Options) (Closer, error) {
	opts := []client.Opt{client.FromEnv}
	if o.Engine != "" {
		opts = append(opts, client.WithHost(o.Engine))
	}
	engine, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	d := &Driver{engine: engine, agent: o.Agent, cgroupParent: o.CgroupParent}
	if !strings.HasPrefix(engine.DaemonHost(), "unix://") {
		return remote{d}, nil
	}
	return d, nil
}

// Close ends the connections to the engine.
func (d *Driver) Close() error { return d.engine.Close() }

// Name implements [sandboxhost.Driver].
func (*Driver) Name() string { return Name }

// Start implements [sandboxhost.Driver].
func (d *Driver) Start(ctx context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	if spec.IDs.Base == 0 {
		return nil, sandboxhost.Unsupported("start", "the docker driver needs root")
	}
	if !spec.Box.Network.Known() {
		return nil, sandboxhost.Unsupported("start", "the docker driver has no network %q", spec.Box.Network)
	}
	if spec.Box.Image != "" && !d.agent.Static {
		return nil, needsStatic()
	}
	if err := d.prepare(spec); err != nil {
		return nil, sandbox.AsError("start", "", err)
	}
	image, err := d.image(ctx, spec.Box.Image)
	if err != nil {
		return nil, startFailed(err, "")
	}
	filter, err := d.filter(ctx, spec.Run)
	if err != nil {
		return nil, startFailed(err, "")
	}
	i, err := d.run(ctx, spec, d.container(spec, image, filter))
	if err != nil {
		after := context.WithoutCancel(ctx)
		return nil, errors.Join(startFailed(err, d.lastWords(after, spec)), d.remove(after, spec))
	}
	return i, nil
}

// prepare gives the sandbox's user its workspace, and the agent's the directory
// in which it makes its socket.
func (d *Driver) prepare(spec sandboxhost.Spec) error {
	uid, gid := spec.IDs.Base+hostroot.UID, spec.IDs.Base+hostroot.GID
	if err := launch.Own(spec.Dir, uid, gid); err != nil {
		return err
	}
	if d.agent.Apart {
		uid, gid = 0, 0 // which it is until its socket is there
		if err := launch.MakeState(spec.State, spec.IDs.Base, spec.IDs.Base); err != nil {
			return err
		}
	}
	return launch.MakeLink(spec.Run, uid, gid)
}

// run makes a container and starts it, up to where its agent listens.
func (d *Driver) run(ctx context.Context, spec sandboxhost.Spec, options client.ContainerCreateOptions) (*instance, error) {
	made, err := d.engine.ContainerCreate(ctx, options)
	if err != nil {
		return nil, err
	}
	if _, err := d.engine.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return nil, err
	}
	i, err := d.hold(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := launch.KeepSocket(ctx, spec.Run, i.done); err != nil {
		return nil, errors.Join(err, i.Stop())
	}
	return i, nil
}

// filter says which system calls a container may make, as the engine reads it:
// Podman wants a file, which is put into run, Docker what stands in it.
func (d *Driver) filter(ctx context.Context, run string) (string, error) {
	profile, err := seccomp.Docker()
	if err != nil {
		return "", err
	}
	is, err := d.engine.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", err
	}
	for _, part := range is.Components {
		if strings.HasPrefix(part.Name, "Podman") {
			if run == "" {
				return "", errors.New("it is Podman, which reads the filter of system calls from a file of its own machine")
			}
			path := filepath.Join(run, "seccomp.json")
			return path, os.WriteFile(path, []byte(profile), 0o600)
		}
	}
	return profile, nil
}

// hold takes hold of a container that runs.
func (d *Driver) hold(ctx context.Context, spec sandboxhost.Spec) (*instance, error) {
	is, err := d.engine.ContainerInspect(ctx, name(spec), client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	if is.Container.State == nil || !is.Container.State.Running || is.Container.State.Pid == 0 {
		return nil, launch.ErrEnded
	}
	first, err := launch.Hold(is.Container.State.Pid)
	if err != nil {
		return nil, err
	}
	// The number was another's if the container has ended since.
	if is, err = d.engine.ContainerInspect(ctx, name(spec), client.ContainerInspectOptions{}); err != nil || is.Container.State.Pid != first.PID() {
		first.Close()
		return nil, errors.Join(launch.ErrEnded, err)
	}
	return newInstance(d, spec, first), nil
}

// name is a container's.
func name(spec sandboxhost.Spec) string { return "controld-" + spec.ID }

func startFailed(err error, words string) error {
	message := "docker: " + err.Error()
	if words != "" {
		message += ": " + words
	}
	return &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start", Message: message, Err: err}
}

// lastWords are the last lines that a container said, if any.
func (d *Driver) lastWords(ctx context.Context, spec sandboxhost.Spec) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	logs, err := d.engine.ContainerLogs(ctx, name(spec), client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "5"})
	if err != nil {
		return ""
	}
	defer logs.Close()
	var out bytes.Buffer
	stdcopy.StdCopy(&out, &out, io.LimitReader(logs, 4096))
	return strings.TrimSpace(out.String())
}

// Adopt implements [sandboxhost.Driver].
func (d *Driver) Adopt(ctx context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	i, err := d.hold(ctx, spec)
	if err == nil {
		return i, nil
	}
	if !errors.Is(err, launch.ErrEnded) && !errdefs.IsNotFound(err) {
		return nil, err
	}
	if err := d.remove(ctx, spec); err != nil {
		return nil, err
	}
	return nil, sandboxhost.ErrGone
}

// An engine may refuse for a moment to remove what has just ended by itself:
// Podman finds it neither running nor cleaned up.
const (
	removeTries = 20
	removePause = 100 * time.Millisecond
)

// remove ends a container and has the engine forget it.
func (d *Driver) remove(ctx context.Context, spec sandboxhost.Spec) error {
	for try := 1; ; try++ {
		_, err := d.engine.ContainerRemove(ctx, name(spec), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if try == removeTries || ctx.Err() != nil {
			return fmt.Errorf("docker: remove %s: %w", name(spec), err)
		}
		time.Sleep(removePause)
	}
}
