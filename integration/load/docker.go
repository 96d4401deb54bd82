package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// dockerName is that of the image and the container made for docker cp.
var dockerName = fmt.Sprintf("controld-load-%d", os.Getpid())

// dockerReady looks for an engine and makes a container that holds a file.
func (b *bench) dockerReady(ctx context.Context, size int64) error {
	if b.servers["docker"] != nil {
		return nil
	}
	if !b.engine(ctx) {
		return fmt.Errorf("%w: a docker engine", errMissing)
	}
	empty, file := filepath.Join(b.temp, "empty.tar"), filepath.Join(b.temp, "docker", "source")
	if err := os.WriteFile(empty, make([]byte, 1024), 0o600); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := sparse(file, size); err != nil {
		return err
	}
	b.cleanups = append(b.cleanups, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		b.run(ctx, "", "docker", "rm", "-f", dockerName)
		b.run(ctx, "", "docker", "rmi", "-f", dockerName)
	})
	for _, argv := range [][]string{
		{"docker", "import", empty, dockerName},
		{"docker", "create", "--name", dockerName, dockerName, "true"},
		{"docker", "cp", file, dockerName + ":/source"},
	} {
		if _, _, err := b.run(ctx, "", argv...); err != nil {
			return err
		}
	}
	b.servers["docker"] = &server{}
	return os.Remove(file)
}

func (b *bench) engine(ctx context.Context) bool {
	if _, err := find("docker"); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, _, err := b.run(ctx, "", "docker", "info", "--format", "{{.ServerVersion}}")
	return err == nil
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
