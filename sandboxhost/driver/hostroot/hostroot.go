// Package hostroot is what a sandbox without an image of its own has for a
// root: the host's programs and libraries, read-only, a configuration of its
// own, and nothing else of the host.
//
// What does not belong here: how a driver makes it so.
package hostroot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What a sandbox finds where, and who it is there.
const (
	// Workspace is the sandbox's own directory, the only one that outlives it.
	Workspace = "/workspace"
	// Agent is the agent's program.
	Agent = "/run/controld/agent"
	// Link is the directory in which an agent makes its socket, where it can
	// be handed none.
	Link = "/run/controld-link"
	// State is the directory of an agent that is another user than the workload.
	State = "/run/controld/state"
	// UID and GID are the workload's.
	UID = 1000
	GID = 1000
	// TempBytes bounds /tmp and /dev/shm each; they are memory.
	TempBytes = 512 << 20
)

// Entry is one path of the root. One of Source, Link and Text is set; a
// directory alone has none.
type Entry struct {
	Path string
	// Source is the host's path that is seen there, read-only.
	Source string
	// Link is what a symbolic link says.
	Link string
	// Text is what a file holds.
	Text string
	// Open says that a directory is everybody's to write in, as /tmp is.
	Open bool
}

// Mode is what a directory or file has, as chmod(2) takes it.
func (e Entry) Mode() int64 {
	switch {
	case e.Open:
		return 0o1777
	case e.Text != "":
		return 0o644
	}
	return 0o755
}

// Entries lists the root, parents before what lies in them. resolver adds the
// host's name servers, for a sandbox that is on its network.
func Entries(resolver bool) []Entry {
	list := []Entry{{Path: "/usr", Source: "/usr"}}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if target, err := os.Readlink(dir); err == nil {
			list = append(list, Entry{Path: dir, Link: target})
		} else if info.IsDir() {
			list = append(list, Entry{Path: dir, Source: dir})
		}
	}
	list = append(list, directories()...)
	return append(append(list, etc(resolver)...), own()...)
}

// Over lists what is seen over the root of an image: what is mounted on, and
// the names of hosts, which an image knows nothing of.
func Over(resolver bool) []Entry {
	list := append(directories(), hosts)
	if source, err := filepath.EvalSymlinks(resolvConf); resolver && err == nil {
		list = append(list, Entry{Path: resolvConf, Source: source})
	}
	return list
}

// resolvConf names the host's name servers.
const resolvConf = "/etc/resolv.conf"

// hosts is the one of a sandbox, of whatever network.
var hosts = Entry{Path: "/etc/hosts", Text: lines("127.0.0.1 localhost", "::1 localhost")}

// directories are those that a driver mounts on, and what they lie in.
func directories() []Entry {
	var list []Entry
	for _, dir := range []string{"/etc", "/dev", "/proc", "/sys", "/tmp", "/run", filepath.Dir(Agent), Workspace} {
		list = append(list, Entry{Path: dir, Open: dir == "/tmp"})
	}
	return list
}

// etc is what programs need of the host's configuration: where libraries are,
// whom TLS trusts, which time zone.
func etc(resolver bool) []Entry {
	shown := []string{"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ca-certificates", "pki/tls/certs",
		"localtime", "protocols", "services"}
	if resolver {
		shown = append(shown, "resolv.conf")
	}
	var list []Entry
	for _, name := range shown {
		path := filepath.Join("/etc", name)
		source, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		if parent := filepath.Dir(path); parent != "/etc" && !slices.Contains(list, Entry{Path: parent}) {
			for _, dir := range between("/etc", parent) {
				list = append(list, Entry{Path: dir})
			}
		}
		list = append(list, Entry{Path: path, Source: source})
	}
	return list
}

// between lists the directories below top that lead to dir, and dir.
func between(top, dir string) []string {
	var all []string
	for ; dir != top; dir = filepath.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}

// own are the files of /etc that are the sandbox's own.
func own() []Entry {
	return []Entry{
		{Path: "/etc/passwd", Text: lines("root:x:0:0:root:/root:/bin/sh",
			"sandbox:x:1000:1000:sandbox:"+Workspace+":/bin/sh", "nobody:x:65534:65534:nobody:/nonexistent:/bin/false")},
		{Path: "/etc/group", Text: lines("root:x:0:", "sandbox:x:1000:", "nogroup:x:65534:")},
		hosts,
		{Path: "/etc/nsswitch.conf", Text: lines("passwd: files", "group: files", "hosts: files dns")},
	}
}

func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }
