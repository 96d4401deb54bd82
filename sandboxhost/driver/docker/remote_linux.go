package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
)

// remote starts sandboxes by an engine that sees nothing of this machine: the
// agent comes by an image that is made of the sandbox's, files live in a volume,
// and the way in is a relay on the standard input and output of an exec.
type remote struct{ *Driver }

var (
	_ sandboxhost.Driver = remote{}
	_ sandboxhost.Storer = remote{}
)

// remoteIDs are the users of all sandboxes of such an engine: where it maps
// users, it has no more than 65,536.
var remoteIDs = sandboxhost.IDs{Base: 63_000, Count: hostroot.UID + 1}

// Start implements [sandboxhost.Driver].
func (r remote) Start(ctx context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	if err := r.supports(spec.Box); err != nil {
		return nil, err
	}
	i, err := r.start(ctx, spec)
	if err != nil {
		after := context.WithoutCancel(ctx)
		return nil, errors.Join(startFailed(err, r.lastWords(after, spec)), r.remove(after, spec))
	}
	return i, nil
}

func (r remote) supports(box sandboxhost.Box) error {
	switch {
	case box.Image == "":
		return sandboxhost.Unsupported("start", "an engine elsewhere has no programs of this machine: it needs an image")
	case box.Network != "" && box.Network != sandboxhost.NetworkNone:
		return sandboxhost.Unsupported("start", "the docker driver gives no network %q by an engine elsewhere", box.Network)
	case !r.agent.Static || !r.agent.Apart:
		return needsStatic()
	}
	return nil
}

func needsStatic() error {
	return &sandbox.Error{Kind: sandbox.KindStartFailed, Op: "start",
		Message: "the agent needs libraries that an image may not have; name a static one by --agent (CGO_ENABLED=0 go build ./cmd/controld-agent)"}
}

func (r remote) start(ctx context.Context, spec sandboxhost.Spec) (*remoteInstance, error) {
	volume, err := volumeOf(spec.Dir)
	if err != nil {
		return nil, err
	}
	image, err := r.derive(ctx, spec.Box.Image)
	if err != nil {
		return nil, err
	}
	filter, err := r.filter(ctx, "")
	if err != nil {
		return nil, err
	}
	if _, err := r.engine.ContainerCreate(ctx, r.container(spec, image, filter, volume)); err != nil {
		return nil, err
	}
	if _, err := r.engine.ContainerStart(ctx, name(spec), client.ContainerStartOptions{}); err != nil {
		return nil, err
	}
	return newRemoteInstance(r, spec), nil
}

// container is that of an engine here, without anything of this machine.
func (r remote) container(spec sandboxhost.Spec, image, filter, volume string) client.ContainerCreateOptions {
	spec.IDs = remoteIDs
	c := r.Driver.container(spec, image, filter)
	stored := func(named, at string) mount.Mount {
		labels := map[string]string{labelTenant: spec.Tenant, labelSandbox: spec.Sandbox}
		return mount.Mount{Type: mount.TypeVolume, Source: named, Target: at, VolumeOptions: &mount.VolumeOptions{Labels: labels}}
	}
	c.HostConfig.Mounts = []mount.Mount{stored(volume, hostroot.Workspace), stored(volume+agentVolume, hostroot.State)}
	// Whoever may not go through it does not reach the agent's socket.
	c.HostConfig.Tmpfs[hostroot.Link] = "rw,noexec,nosuid,nodev,size=64k,mode=0700"
	return c
}

// Adopt implements [sandboxhost.Driver].
func (r remote) Adopt(ctx context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	is, err := r.engine.ContainerInspect(ctx, name(spec), client.ContainerInspectOptions{})
	switch {
	case err == nil && is.Container.State != nil && is.Container.State.Running:
		return newRemoteInstance(r, spec), nil
	case err != nil && !errdefs.IsNotFound(err):
		return nil, err
	}
	if err := r.remove(ctx, spec); err != nil {
		return nil, err
	}
	return nil, sandboxhost.ErrGone
}

// agentVolume ends the name of the volume that is the agent's.
const agentVolume = "-agent"

// volumeFile is the file of a sandbox's directory that names its volume.
const volumeFile = "volume"

// volumeOf returns the name of a sandbox's volume, which it gets with its first
// life.
func volumeOf(dir string) (string, error) {
	named, err := readVolume(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return named, err
	}
	named = "controld-" + uuid.NewString()
	at := filepath.Join(dir, volumeFile)
	// The name is there whole or not at all: without it the volume is lost.
	part := at + ".new"
	if err := os.WriteFile(part, []byte(named), 0o600); err != nil {
		return "", err
	}
	return named, os.Rename(part, at)
}

// readVolume reads what volumeOf wrote. In a directory that was another driver's
// before, a sandbox may have written such a file, with a name of its choice.
func readVolume(dir string) (string, error) {
	f, err := os.OpenFile(filepath.Join(dir, volumeFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return "", fmt.Errorf("%s: it is not what this daemon wrote", f.Name())
	}
	text, err := io.ReadAll(io.LimitReader(f, 256))
	return string(text), err
}

// Discard implements [sandboxhost.Storer].
func (r remote) Discard(ctx context.Context, dir string) error {
	named, err := readVolume(dir)
	if err != nil {
		return nil // there is none, or a sandbox's own file
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, one := range []string{named, named + agentVolume} {
		if _, err := r.engine.VolumeRemove(ctx, one, client.VolumeRemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}
