package bwrap

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// What a sandbox finds where.
const (
	workspace = "/workspace"
	agentPath = "/run/controld/agent"
	// insideID is its user and group.
	insideID = 1000
	// tempBytes bounds /tmp and /dev/shm each; they are memory.
	tempBytes = 512 << 20
)

// arguments tell bubblewrap what to make of a sandbox. They are carried out in
// their order.
func arguments(agent string, spec sandboxhost.Spec) []string {
	id := fmt.Sprint(insideID)
	args := []string{
		"--unshare-user", "--uid", id, "--gid", id, "--disable-userns",
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", spec.Sandbox, "--new-session", "--as-pid-1", "--cap-drop", "ALL",
		"--seccomp", fmt.Sprint(fdFilter), "--json-status-fd", fmt.Sprint(fdStatus), "--clearenv",
	}
	if spec.Box.Network != sandboxhost.NetworkHost {
		args = append(args, "--unshare-net")
	}
	for _, name := range slices.Sorted(maps.Keys(launch.Handed(1, 1))) {
		args = append(args, "--setenv", name, launch.Handed(1, 1)[name])
	}
	args = append(args, system()...)
	args = append(args, etc(spec)...)
	return append(args,
		"--proc", "/proc",
		"--dev", "/dev", "--size", fmt.Sprint(tempBytes), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
		"--perms", "1777", "--size", fmt.Sprint(tempBytes), "--tmpfs", "/tmp",
		"--ro-bind", agent, agentPath,
		"--bind", spec.Dir, workspace,
		"--remount-ro", "/", "--chdir", workspace)
}

// system shows the host's programs and libraries, and nothing else of it.
func system() []string {
	args := []string{"--ro-bind", "/usr", "/usr"}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if target, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", target, dir)
		} else if info.IsDir() {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	return args
}

// etc shows what programs need of the host's configuration: where libraries
// are, whom TLS trusts, which time zone. Users are the sandbox's own.
func etc(spec sandboxhost.Spec) []string {
	shown := []string{"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ca-certificates", "pki/tls/certs", "localtime", "protocols", "services"}
	if spec.Box.Network == sandboxhost.NetworkHost {
		shown = append(shown, "resolv.conf")
	}
	var args []string
	for _, name := range shown {
		args = append(args, "--ro-bind-try", filepath.Join("/etc", name), filepath.Join("/etc", name))
	}
	for name := range ownEtc {
		args = append(args, "--ro-bind", filepath.Join(spec.Run, "etc", name), filepath.Join("/etc", name))
	}
	return args
}

// ownEtc are the files of /etc that are the sandbox's own.
var ownEtc = map[string]string{
	"passwd":        "root:x:0:0:root:/root:/bin/sh\nsandbox:x:1000:1000:sandbox:" + workspace + ":/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
	"group":         "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
	"hosts":         "127.0.0.1 localhost\n::1 localhost\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}

// writeEtc writes them into the directory of an instance.
func writeEtc(run string) error {
	dir := filepath.Join(run, "etc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range ownEtc {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
