package drivers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// tool is what an engine's own command line does, for figures beside it.
type tool struct {
	run  func() error // a container that runs true and is gone
	exec func() error // true in one that runs
}

// command runs a program and tells what it said where it failed.
func command(env []string, line ...string) error {
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", line, err, out)
	}
	return nil
}

func newTool(b *testing.B, name string) tool {
	b.Helper()
	switch name {
	case "bwrap":
		return tool{
			run:  func() error { return command(nil, "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--", "/bin/true") },
			exec: func() error { return command(nil, "/bin/sh", "-c", "true") },
		}
	case "docker", "podman":
		return engineTool(b, name)
	}
	return runtimeTool(b, name)
}

// busybox makes a root of nothing but a static busybox.
func busybox(b testing.TB) string {
	root := b.TempDir()
	script := `cd "$0" && mkdir bin proc dev tmp && cp "$(command -v busybox)" bin/ && for name in sh true sleep cat ls; do ln -s busybox bin/$name; done`
	if err := command(nil, "sh", "-c", script, root); err != nil {
		b.Fatal(err)
	}
	return root
}

// runtimeTool has a runtime run a bundle, read-only.
func runtimeTool(b *testing.B, name string) tool {
	dir := engineDir(b) // the state may hold mounts
	line := []string{name, "--root", filepath.Join(dir, "state")}
	switch name {
	case "crun":
		line = append([]string{"unshare", "-m", "sh", "-c", `[ ! -d /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified; exec "$@"`, "sh"}, line...)
	case "runsc":
		line = append(line, "--network=none", "--ignore-cgroups")
	}
	root := busybox(b)
	once, stays := bundle(b, dir, root, "once", "/bin/true"), bundle(b, dir, root, "stays", "/bin/sleep", "1000")
	call := func(args ...string) error { return command(nil, append(line[:len(line):len(line)], args...)...) }
	if err := exec.Command(line[0], append(line[1:], "run", "--detach", "--bundle", stays, "stays")...).Run(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { call("delete", "--force", "stays") })
	n := 0
	return tool{
		run: func() error {
			n++
			return call("run", "--bundle", once, fmt.Sprintf("once%d", n))
		},
		exec: func() error { return call("exec", "stays", "/bin/true") },
	}
}

func bundle(b *testing.B, dir, root, name string, args ...string) string {
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	mount := func(kind, at string) specs.Mount { return specs.Mount{Destination: at, Type: kind, Source: kind} }
	c := specs.Spec{
		Version: "1.0.2", Root: &specs.Root{Path: root, Readonly: true},
		Process: &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}},
		Mounts:  []specs.Mount{mount("proc", "/proc"), mount("tmpfs", "/dev"), mount("tmpfs", "/tmp")},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
			{Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace}}},
	}
	text, err := json.Marshal(c)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
	}
	if err != nil {
		b.Fatal(err)
	}
	return dir
}

// engineTool has the docker command run containers of a static busybox, on an
// engine of the test's own.
func engineTool(b *testing.B, name string) tool {
	socket := map[string]func(testing.TB) string{"docker": dockerd, "podman": podman}[name](b)
	env := []string{"DOCKER_HOST=unix://" + socket}
	script := `tar -C "$0" -c . | docker import - figures >/dev/null && docker run -d --name stays --network none figures /bin/sleep 1000`
	if err := command(env, "sh", "-c", script, busybox(b)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { command(env, "sh", "-c", "docker rm -f $(docker ps -aq)") })
	return tool{
		run: func() error {
			return command(env, "sh", "-c", "id=$(docker run -d --network none figures /bin/sleep 1000) && docker exec $id /bin/true")
		},
		exec: func() error { return command(env, "docker", "exec", "stays", "/bin/true") },
	}
}
