package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// docker is the reference of files and commands in a container. With -full,
// root starts an engine of its own where none answers.
const docker = "docker"

// dockerName is that of the image and the container made here.
var dockerName = fmt.Sprintf("controld-load-%d", os.Getpid())

// dockerSize is what docker cp copies: it needs the disk three times.
const dockerSize = 1 << 30

// dockerCommand returns a command line of docker's client.
func (b *bench) dockerCommand(args ...string) []string {
	return append(append([]string{docker}, b.engineAt...), args...)
}

// dockerReady makes a running container that holds a file of some size.
func (b *bench) dockerReady(ctx context.Context, size int64) error {
	if err := b.refused[docker]; err != nil || b.container {
		return err
	}
	err := b.makeContainer(ctx, size)
	if b.container = err == nil; err != nil {
		b.refused[docker] = err
	}
	return err
}

func (b *bench) makeContainer(ctx context.Context, size int64) error {
	if err := b.findEngine(ctx); err != nil {
		return err
	}
	image, file := filepath.Join(b.temp, "image.tar"), filepath.Join(b.temp, "source")
	if err := b.busyboxImage(ctx, image); err != nil {
		return err
	}
	if err := fill(file, size); err != nil {
		return err
	}
	defer os.Remove(file)
	b.cleanups = append(b.cleanups, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		b.run(ctx, "", b.dockerCommand("rm", "-f", dockerName)...)
		b.run(ctx, "", b.dockerCommand("rmi", "-f", dockerName)...)
	})
	for _, args := range [][]string{
		{"import", image, dockerName},
		// The container ends by itself, should this program not end it.
		{"run", "-d", "--name", dockerName, "--network", "none", dockerName, "/bin/sleep", "7200"},
		{"cp", file, dockerName + ":/source"},
	} {
		if _, _, err := b.run(ctx, "", b.dockerCommand(args...)...); err != nil {
			return err
		}
	}
	return nil
}

// busyboxImage packs what a container needs at least.
func (b *bench) busyboxImage(ctx context.Context, path string) error {
	busybox, err := b.command(ctx, "busybox")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	for _, name := range []string{"sh", "sleep", "true"} {
		if err := w.WriteHeader(&tar.Header{Name: "bin/" + name, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}); err != nil {
			return err
		}
		w.Write(program) // to memory
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, image.Bytes(), 0o600)
}

// findEngine uses the engine that docker's client finds, or starts one.
func (b *bench) findEngine(ctx context.Context) error {
	if _, err := b.command(ctx, docker); err != nil {
		return err
	}
	if b.answers(ctx) {
		return nil
	}
	if !b.full || os.Geteuid() != 0 {
		return fmt.Errorf("%w: a docker engine", errMissing)
	}
	path, err := b.command(ctx, "dockerd")
	if err != nil {
		return err
	}
	dir := filepath.Join(b.temp, docker)
	socket := "unix://" + filepath.Join(dir, "socket")
	// It has neither bridge nor rules of a firewall, and its mounts are its
	// own, so nothing of it outlives it.
	p, err := b.start("dockerd", false, "unshare", "-m", "--propagation", "private", path, "-H", socket, "--data-root", filepath.Join(dir, "data"),
		"--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"),
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
	if err != nil {
		return err
	}
	b.engineAt = []string{"-H", socket}
	return await(ctx, p, func() bool { return b.answers(ctx) })
}

func (b *bench) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, _, err := b.run(ctx, "", b.dockerCommand("info", "--format", "{{.ServerVersion}}")...)
	return err == nil
}

// dockerOut copies a file out of a container.
func (b *bench) dockerOut(ctx context.Context) (measure, error) {
	size := min(b.size, dockerSize)
	if err := b.dockerReady(ctx, size); err != nil {
		return measure{}, err
	}
	return b.ranFor(ctx, size, b.dockerCommand("cp", dockerName+":/source", b.target())...)
}

// dockerIn copies a file into a container. The target is as long as asked
// for, or docker cp fails.
func (b *bench) dockerIn(ctx context.Context) (measure, error) {
	size := min(b.size, dockerSize)
	if err := b.dockerReady(ctx, size); err != nil {
		return measure{}, err
	}
	part := filepath.Join(b.shm, "part")
	defer os.Remove(part)
	if err := fill(part, size); err != nil {
		return measure{}, err
	}
	m, _, err := b.run(ctx, "", b.dockerCommand("cp", part, dockerName+":/target")...)
	m.bytes = size
	return m, err
}

// dockerExecs is how often a round starts a command in the container.
const dockerExecs = 15

// dockerExec is the case of a command in a container; its value is the median
// in microseconds.
func (b *bench) dockerExec(ctx context.Context) (measure, error) {
	if err := b.dockerReady(ctx, min(b.size, dockerSize)); err != nil {
		return measure{}, err
	}
	var took []float64
	for range dockerExecs {
		m, _, err := b.run(ctx, "", b.dockerCommand("exec", dockerName, "/bin/sh", "-c", "true")...)
		if err != nil {
			return m, err
		}
		took = append(took, m.seconds*1e6)
	}
	slices.Sort(took)
	return measure{value: took[len(took)/2]}, nil
}

// ranFor runs a command that makes a target of so many bytes.
func (b *bench) ranFor(ctx context.Context, size int64, argv ...string) (measure, error) {
	defer os.Remove(b.target())
	m, _, err := b.run(ctx, "", argv...)
	if err != nil {
		return m, err
	}
	st, err := os.Stat(b.target())
	if err != nil {
		return m, err
	}
	if m.bytes = st.Size(); m.bytes != size {
		return m, fmt.Errorf("%d bytes of %d", m.bytes, size)
	}
	return m, nil
}
