package drivers

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// foeEnv has this test's own program do a deed in place of its tests, inside a
// sandbox.
const foeEnv = "CONTROLD_TEST_FOE"

// foe does what a workload may not and prints, line by line, what it got. Its
// arguments are addresses of the host's: an abstract Unix socket and a TCP one.
func foe(arguments string) int {
	switch arguments {
	case foeSwaps:
		return swap()
	case bareForks:
		return forks(bareForkCount)
	case bareBytes:
		return bytesLoop("file")
	case foeApart:
		return touch()
	}
	abstract, tcp, _ := strings.Cut(arguments, " ")
	got := []string{foeTried}
	for what, try := range attempts(abstract, tcp) {
		if err := try(); err == nil {
			got = append(got, what)
		}
	}
	got = append(got, opened()...)
	for _, line := range append(got, knock()...) {
		fmt.Println(line)
	}
	return 0
}

// What the foe is told in place of addresses, and what it says when it has tried.
const (
	foeSwaps = "swap"
	foeTried = "tried"
)

// swap has d and l, a directory and a link, change places until there is a file
// named stop, and prints how often.
func swap() int {
	n := 0
	for ; ; n++ {
		if err := unix.Renameat2(unix.AT_FDCWD, "d", unix.AT_FDCWD, "l", unix.RENAME_EXCHANGE); err != nil {
			fmt.Println(err)
			return 1
		}
		if _, err := os.Lstat("stop"); n%64 == 0 && err == nil {
			fmt.Println(n)
			return 0
		}
	}
}

// call makes a system call by its number.
func call(number, a, b, c uintptr) func() error {
	return func() error {
		if _, _, errno := unix.Syscall6(number, a, b, c, 0, 0, 0); errno != 0 {
			return errno
		}
		return nil
	}
}

// attempts are what nobody may do in a sandbox, by name.
func attempts(abstract, tcp string) map[string]func() error {
	room, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON) // which does not move
	if err != nil {
		return map[string]func() error{"nothing: " + err.Error(): func() error { return nil }}
	}
	p := uintptr(unsafe.Pointer(&room[0]))
	dial := func(network, address string) func() error {
		return func() error {
			c, err := net.DialTimeout(network, address, time.Second)
			if err == nil {
				c.Close()
			}
			return err
		}
	}
	os.Mkdir("/workspace/m", 0o755)
	return map[string]func() error{
		"mount tmpfs":           func() error { return unix.Mount("x", "/workspace/m", "tmpfs", 0, "") },
		"mount bind":            func() error { return unix.Mount("/etc", "/workspace/m", "", unix.MS_BIND, "") },
		"remount /":             func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") },
		"umount /proc":          func() error { return unix.Unmount("/proc", unix.MNT_DETACH) },
		"pivot_root":            func() error { return unix.PivotRoot("/workspace", "/workspace/m") },
		"chroot":                func() error { return unix.Chroot("/workspace/m") },
		"unshare user":          func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"unshare mount":         func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		"unshare net":           func() error { return unix.Unshare(unix.CLONE_NEWNET) },
		"setuid 0":              func() error { return unix.Setuid(0) },
		"setns":                 func() error { return setns("/proc/1/ns/mnt") },
		"ptrace 1":              func() error { return unix.PtraceSeize(1) },
		"read memory of 1":      func() error { return readMemory(1) },
		"io_uring_setup":        call(unix.SYS_IO_URING_SETUP, 1, p, 0),
		"add_key":               call(unix.SYS_ADD_KEY, p, p, p),
		"keyctl":                call(unix.SYS_KEYCTL, 0, 0xfffffffd, 1), // KEYCTL_GET_KEYRING_ID of the session
		"bpf":                   call(unix.SYS_BPF, 0, p, 128),
		"perf_event_open":       call(unix.SYS_PERF_EVENT_OPEN, p, 0, 0),
		"userfaultfd":           call(unix.SYS_USERFAULTFD, 0, 0, 0),
		"open_by_handle_at":     call(unix.SYS_OPEN_BY_HANDLE_AT, 0, p, 0),
		"init_module":           call(unix.SYS_INIT_MODULE, p, 8, p),
		"swapon":                call(unix.SYS_SWAPON, p, 0, 0),
		"syslog":                call(unix.SYS_SYSLOG, 3, p, 256),
		"sethostname":           func() error { return unix.Sethostname([]byte("foe")) },
		"settimeofday":          func() error { return unix.Settimeofday(&unix.Timeval{Sec: 1}) },
		"mknod of a disk":       func() error { return unix.Mknod("/workspace/disk", unix.S_IFBLK|0o666, 8<<8) },
		"mknod of memory":       func() error { return unix.Mknod("/workspace/mem", unix.S_IFCHR|0o666, 1<<8|1) },
		"abstract socket":       dial("unix", "@"+abstract),
		"loopback of the host":  dial("tcp", tcp),
		"a raw socket":          func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP); return err },
		"a packet socket":       func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err },
		"new privileges":        func() error { return privileged() },
		"write the agent":       func() error { return os.WriteFile("/run/controld/agent", nil, 0o755) },
		"write /usr":            func() error { return os.WriteFile("/usr/bin/foe", nil, 0o755) },
		"write /etc":            func() error { return os.WriteFile("/etc/foe", nil, 0o644) },
		"write /":               func() error { return os.WriteFile("/foe", nil, 0o644) },
		"shadow by a link":      func() error { return throughLink("/etc/shadow") },
		"shadow by its parents": func() error { return readSome("/workspace/../../../../../../etc/shadow") },
	}
}

func setns(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), 0)
}

func readMemory(pid int) error {
	here := make([]byte, 8)
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &here[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	return err
}

// privileged fails where a program can give nobody more than it had.
func privileged() error {
	on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err == nil && on == 1 {
		err = unix.EPERM
	}
	return err
}

func throughLink(to string) error {
	os.Remove("/workspace/link")
	if err := os.Symlink(to, "/workspace/link"); err != nil {
		return err
	}
	return readSome("/workspace/link")
}

// readSome fails where nothing is read.
func readSome(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := f.Read(make([]byte, 16)); n == 0 {
		return fmt.Errorf("nothing: %w", err)
	}
	return nil
}

// opened are the files that can be read, or opened to be written, and should
// not be.
func opened() []string {
	var got []string
	for _, name := range []string{"environ", "mem", "maps", "smaps", "auxv", "stack", "fd/0", "fd/3", "fd/4", "root/etc/passwd", "exe"} {
		if readSome("/proc/1/"+name) == nil {
			got = append(got, "read /proc/1/"+name)
		}
	}
	for _, path := range []string{"/proc/kcore", "/proc/kmsg", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/kvm",
		"/sys/kernel/security", "/sys/firmware/dmi/tables/DMI"} {
		if readSome(path) == nil {
			got = append(got, "read "+path)
		}
	}
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger",
		"/proc/1/oom_score_adj", "/proc/1/mem", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/cgroup.procs", "/sys/power/state"} {
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			f.Close()
			got = append(got, "opened to write "+path)
		}
	}
	return got
}

// knock says hello without the secret, and garbage, to every socket that can be
// found, and puts something else in its place.
func knock() []string {
	var got []string
	filepath.WalkDir("/", func(path string, d os.DirEntry, err error) error {
		if err != nil || path == "/proc" || path == "/sys" || path == "/usr" {
			return filepath.SkipDir
		}
		if d.Type()&os.ModeSocket == 0 {
			return nil
		}
		for _, says := range []string{"\x00\xff", `{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"token":"guess"}}` + "\n",
			"CTRLD1 " + strings.Repeat("A", 43) + "\n"} {
			if answer := said(path, says); strings.Contains(answer, `"result"`) || strings.HasPrefix(answer, "OK") {
				got = append(got, path+" answers "+answer)
			}
		}
		if os.Remove(path) == nil {
			os.WriteFile(path, []byte("foe"), 0o666)
		}
		return nil
	})
	return got
}

func said(path, says string) string {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	io.WriteString(c, says)
	answer := make([]byte, 4096)
	n, _ := c.Read(answer)
	return string(answer[:n])
}
