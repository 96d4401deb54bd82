package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox/local/landlock"
)

// machine looks at what drivers and the daemon rest on.
func machine() []finding {
	return []finding{kernel(), openat2(), cgroups(), userNamespaces(), landlocked(), device("kvm", "/dev/kvm"), device("vsock", "/dev/vsock"), descriptors()}
}

func kernel() finding {
	var u unix.Utsname
	err := unix.Uname(&u)
	f := finding{Check: "kernel", OK: err == nil, Says: unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])}
	return f
}

// openat2 is how paths are held below a directory; without it they are walked.
func openat2() finding {
	f := finding{Check: "openat2", Says: "paths are held below a directory by the kernel"}
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		f.Says, f.Hint = err.Error(), "paths are walked instead, which is slower; Linux has it since 5.6"
		return f
	}
	unix.Close(fd)
	f.OK = true
	return f
}

// cgroups tells which versions there are.
func cgroups() finding {
	f := finding{Check: "cgroups", OK: true}
	var st unix.Statfs_t
	switch {
	case unix.Statfs("/sys/fs/cgroup", &st) != nil:
		f.OK, f.Says, f.Hint = false, "none", "mount cgroup2 on /sys/fs/cgroup for limits and for trees that end at once"
	case st.Type == unix.CGROUP2_SUPER_MAGIC:
		f.Says = "version 2"
	case unix.Statfs("/sys/fs/cgroup/unified", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC:
		f.Says = "version 1, and 2 beside it"
	default:
		f.Says = "version 1"
	}
	return f
}

func userNamespaces() finding {
	f := finding{Check: "user namespaces", Hint: "user.max_user_namespaces, kernel.unprivileged_userns_clone or an LSM forbids them"}
	text, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	most := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		f.Says = err.Error()
	case most == "0":
		f.Says = "none may be made"
	default:
		f.OK, f.Says = true, "at most "+most
	}
	return f
}

// landlocked tells which version of Landlock there is.
func landlocked() finding {
	switch version := landlock.Version(); {
	case version == 0:
		return finding{Check: "Landlock", Says: "none", Hint: "Linux has it since 5.13, where it is configured; bwrap does without"}
	case version == 1:
		return finding{Check: "Landlock", Says: "version 1", Hint: "bwrap uses it from version 2 on (Linux 5.19)"}
	default:
		return finding{Check: "Landlock", OK: true, Says: fmt.Sprintf("version %d", version)}
	}
}

// device tells whether a device can be opened. What it is good for is another
// question: a KVM that opens may still run no guest.
func device(what, path string) finding {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		f.Close()
		return finding{Check: what, OK: true, Says: path + " opens"}
	}
	found := finding{Check: what, Says: err.Error()}
	if errors.Is(err, os.ErrPermission) {
		found.Hint = "give whom runs controld access to it"
	}
	return found
}

func descriptors() finding {
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
		return finding{Check: "descriptors", Says: err.Error()}
	}
	return finding{Check: "descriptors", OK: most.Max >= 8192, Says: fmt.Sprintf("at most %d", most.Max),
		Hint: "raise the hard limit of open files: connections and transfers hold one or more each"}
}
