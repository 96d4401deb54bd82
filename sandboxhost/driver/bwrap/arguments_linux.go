package bwrap

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// place is what lies where on the host. It may be elsewhere than the
// specification says: see stage.
type place struct {
	workspace string
	agent     string
	etc       string // the files of the sandbox's own
	state     string // the agent's own; empty where it has none
}

// arguments tell bubblewrap what to make of a sandbox. They are carried out in
// their order.
func (d Driver) arguments(spec sandboxhost.Spec, at place) []string {
	args := append([]string{"--unshare-user", "--cap-drop", "ALL"}, d.users(spec)...)
	args = append(args,
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", spec.Sandbox, "--new-session", "--as-pid-1",
		"--seccomp", fmt.Sprint(fdFilter), "--info-fd", fmt.Sprint(fdStatus), "--clearenv")
	if spec.Box.Network != sandboxhost.NetworkHost {
		args = append(args, "--unshare-net")
	}
	handed := launch.Handed(1, 1)
	for _, name := range slices.Sorted(maps.Keys(handed)) {
		args = append(args, "--setenv", name, handed[name])
	}
	for _, e := range hostroot.Entries(spec.Box.Network == sandboxhost.NetworkHost) {
		args = append(args, entry(e, at)...)
	}
	if at.state != "" {
		args = append(args, "--bind", at.state, hostroot.State)
	}
	temp := fmt.Sprint(hostroot.TempBytes)
	return append(args,
		"--proc", "/proc",
		"--dev", "/dev", "--perms", "1777", "--size", temp, "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
		"--perms", "1777", "--size", temp, "--tmpfs", "/tmp",
		"--ro-bind", at.agent, hostroot.Agent,
		"--bind", at.workspace, hostroot.Workspace,
		"--remount-ro", "/", "--chdir", "/")
}

// users say who the agent is: root of all users of the sandbox, who are given to
// it from outside while bubblewrap waits; else the workload's, the only one. The
// namespaces that --disable-userns keeps from it the filter does, too.
func (d Driver) users(spec sandboxhost.Spec) []string {
	if !d.apart(spec) {
		return []string{"--uid", fmt.Sprint(hostroot.UID), "--gid", fmt.Sprint(hostroot.GID), "--disable-userns"}
	}
	args := []string{"--uid", "0", "--gid", "0", "--userns-block-fd", fmt.Sprint(fdUsers)}
	for _, name := range launch.Capabilities() {
		args = append(args, "--cap-add", name)
	}
	return args
}

func entry(e hostroot.Entry, at place) []string {
	switch {
	case e.Source != "":
		return []string{"--ro-bind", e.Source, e.Path}
	case e.Link != "":
		return []string{"--symlink", e.Link, e.Path}
	case e.Text != "":
		return []string{"--ro-bind", filepath.Join(at.etc, filepath.Base(e.Path)), e.Path}
	}
	return []string{"--perms", "0755", "--dir", e.Path}
}

// writeEtc writes the files of the sandbox's own into a directory.
func writeEtc(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, e := range hostroot.Entries(false) {
		if e.Text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(e.Path)), []byte(e.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
