package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/controld/controld/sandboxhost/driver/hostroot"
)

// derive returns an image that is the one named with the agent in it. There is
// one for each image and each agent.
func (r remote) derive(ctx context.Context, named string) (string, error) {
	if err := r.pull(ctx, named); err != nil {
		return "", err
	}
	is, err := r.engine.ImageInspect(ctx, named)
	if err != nil {
		return "", err
	}
	if is.Architecture != "" && is.Architecture != runtime.GOARCH {
		return "", fmt.Errorf("the image is for %s, the agent for %s", is.Architecture, runtime.GOARCH)
	}
	sum := sha256.Sum256([]byte(is.ID + " " + filepath.Base(r.agent.Path)))
	derived := "controld-agent:" + hex.EncodeToString(sum[:16])
	if has, err := r.has(ctx, derived); has || err != nil {
		return derived, err
	}
	return derived, r.addAgent(ctx, is.ID, derived)
}

// addAgent makes an image of another and the agent, by way of a container that
// never runs.
func (r remote) addAgent(ctx context.Context, image, derived string) (err error) {
	made, err := r.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config: &container.Config{Image: image, Entrypoint: []string{hostroot.Agent}, Labels: map[string]string{labelInstance: ""}},
	})
	if err != nil {
		return err
	}
	defer func() {
		_, gone := r.engine.ContainerRemove(context.WithoutCancel(ctx), made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		err = errors.Join(err, gone)
	}()
	content, feed := io.Pipe()
	fed := make(chan error, 1)
	go func() {
		err := r.writeAdded(feed)
		feed.CloseWithError(err)
		fed <- err
	}()
	_, err = r.engine.CopyToContainer(ctx, made.ID, client.CopyToContainerOptions{DestinationPath: "/", Content: content, CopyUIDGID: true})
	content.Close()
	if err := errors.Join(err, <-fed); err != nil {
		return err
	}
	_, err = r.engine.ContainerCommit(ctx, made.ID, client.ContainerCommitOptions{Reference: derived})
	return err
}

// writeAdded writes the archive of what an image gets: the agent, and the
// directories that are mounted on. A new volume takes its owner from the one
// that it is first mounted on.
func (r remote) writeAdded(to io.Writer) error {
	program, err := os.ReadFile(r.agent.Path)
	if err != nil {
		return err
	}
	own, user := remoteIDs.Base, remoteIDs.Base+hostroot.UID
	w := tar.NewWriter(to)
	for _, h := range []tar.Header{
		{Name: filepath.Dir(hostroot.Agent), Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: hostroot.Agent, Typeflag: tar.TypeReg, Mode: 0o555, Size: int64(len(program))},
		{Name: hostroot.Link, Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: "/tmp", Typeflag: tar.TypeDir, Mode: 0o1777}, // runc gives what it mounts there the same
		{Name: hostroot.State, Typeflag: tar.TypeDir, Mode: 0o700, Uid: own, Gid: own},
		{Name: hostroot.Workspace, Typeflag: tar.TypeDir, Mode: 0o755, Uid: user, Gid: user},
	} {
		h.Name = strings.TrimPrefix(h.Name, "/")
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(program); err != nil {
				return err
			}
		}
	}
	return w.Close()
}
