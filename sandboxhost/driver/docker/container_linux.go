package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// The labels by which a container's own are known.
const (
	labelInstance = "controld.instance"
	labelTenant   = "controld.tenant"
	labelSandbox  = "controld.sandbox"
)

// container says what to make of a sandbox.
func (d *Driver) container(spec sandboxhost.Spec, image, filter string) client.ContainerCreateOptions {
	network := spec.Box.Network
	if network == "" {
		network = sandboxhost.NetworkNone
	}
	uid, gid := spec.IDs.Base+hostroot.UID, spec.IDs.Base+hostroot.GID
	user := fmt.Sprintf("%d:%d", uid, gid)
	var has, as []string
	if d.agent.Apart {
		// The container's users are the machine's, root too: none of the
		// sandbox's for longer than it takes to become another.
		user, has = "0:0", launch.Capabilities()
		as = append(launch.As(uid, gid, spec.Box.Processes, hostroot.State), "--own-user", fmt.Sprintf("%d:%[1]d", spec.IDs.Base))
	}
	temp := fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,mode=1777", hostroot.TempBytes)
	never := false
	return client.ContainerCreateOptions{
		Name: name(spec),
		Config: &container.Config{
			Image: image, User: user, Hostname: hostname(spec, network), WorkingDir: "/",
			Entrypoint: d.agent.Inside(hostroot.Agent, hostroot.Workspace, launch.SocketURL(hostroot.Link), spec.Secret, as...),
			Cmd:        []string{},
			Labels:     map[string]string{labelInstance: spec.ID, labelTenant: spec.Tenant, labelSandbox: spec.Sandbox},
		},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(network), ReadonlyRootfs: true, Init: &never,
			CapDrop: []string{"ALL"}, CapAdd: has, SecurityOpt: []string{"no-new-privileges", "seccomp=" + filter},
			Tmpfs: map[string]string{"/tmp": temp}, ShmSize: hostroot.TempBytes,
			Mounts:    d.mounts(spec),
			Resources: resources(spec.Box, d.cgroupParent),
		},
	}
}

// hostname is the sandbox's name, where it has one of its own.
func hostname(spec sandboxhost.Spec, network sandboxhost.Network) string {
	if network == sandboxhost.NetworkHost {
		return ""
	}
	return spec.Sandbox
}

func (d *Driver) mounts(spec sandboxhost.Spec) []mount.Mount {
	bind := func(source, target string, readOnly bool) mount.Mount {
		return mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly}
	}
	list := []mount.Mount{
		bind(d.agent.Path, hostroot.Agent, true),
		bind(launch.LinkDir(spec.Run), hostroot.Link, false),
		bind(spec.Dir, hostroot.Workspace, false),
	}
	if d.agent.Apart {
		list = append(list, bind(spec.State, hostroot.State, false))
	}
	if spec.Box.Image == "" {
		for _, e := range hostroot.Entries(spec.Box.Network == sandboxhost.NetworkHost) {
			// The engine has resolv.conf for every container itself.
			if e.Source != "" && e.Path != "/etc/resolv.conf" {
				list = append(list, bind(e.Source, e.Path, true))
			}
		}
	}
	return list
}

func resources(box sandboxhost.Box, parent string) container.Resources {
	r := container.Resources{CgroupParent: parent, Memory: box.Memory, MemorySwap: box.Memory, NanoCPUs: int64(box.CPUs * 1e9)}
	if box.Processes > 0 {
		r.PidsLimit = &box.Processes
	}
	return r
}

// image returns the image to use: the one named, which is pulled where the
// engine does not have it, or one of nothing but the places at which the host's
// own programs are seen.
func (d *Driver) image(ctx context.Context, named string) (string, error) {
	if named != "" {
		return named, d.pull(ctx, named)
	}
	text, err := skeleton()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	named = "controld-root:" + hex.EncodeToString(sum[:8])
	if has, err := d.has(ctx, named); has || err != nil {
		return named, err
	}
	source := client.ImageImportSource{Source: bytes.NewReader(text), SourceName: "-"}
	answer, err := d.engine.ImageImport(ctx, source, named, client.ImageImportOptions{})
	if err != nil {
		return "", err
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		return "", err
	}
	if has, err := d.has(ctx, named); !has {
		return "", errors.Join(fmt.Errorf("the engine did not import %s", named), err)
	}
	return named, nil
}

func (d *Driver) has(ctx context.Context, image string) (bool, error) {
	_, err := d.engine.ImageInspect(ctx, image)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (d *Driver) pull(ctx context.Context, image string) error {
	if has, err := d.has(ctx, image); has || err != nil {
		return err
	}
	answer, err := d.engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer answer.Close()
	return answer.Wait(ctx)
}

// skeleton is an archive of a root in which the host's programs can be seen.
func skeleton() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range hostroot.Entries(false) {
		h := &tar.Header{Name: strings.TrimPrefix(e.Path, "/"), Mode: e.Mode(), Format: tar.FormatPAX}
		switch {
		case e.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
		case e.Text != "":
			h.Typeflag, h.Size = tar.TypeReg, int64(len(e.Text))
		case e.Source != "":
			continue // the engine makes what it mounts on
		default:
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, e.Text); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
