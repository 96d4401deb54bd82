//go:build linux

// Command inside is the first process of a machine that a test of the package
// guest booted. It makes the machine usable, does what the kernel's command
// line says (role=NAME,ARG,...), reports on the console, and turns it off.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/integration/guest"
	"github.com/controld/controld/sandbox/local"
)

// roles are what a machine can be for.
var roles = map[string]func(ctx context.Context, args []string) error{
	"write":     write,
	"check":     check,
	"limits":    limits,
	"clock":     clock,
	"dead-peer": deadPeer,
	"kept":      kept,
}

func main() {
	if os.Getpid() != 1 {
		if err := other(context.Background(), os.Args[1:]); err != nil {
			fmt.Println("failed:", err)
		}
		return
	}
	err := run()
	if err != nil {
		say("failed", strings.ReplaceAll(err.Error(), "\n", " "))
	} else {
		say("done")
	}
	time.Sleep(100 * time.Millisecond) // the console's own pace
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// other is what this program is when it is not the first process.
func other(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0:
		return peer(ctx)
	case args[0] == wordKeep:
		os.Exit(local.Keep())
	case args[0] == wordDaemon && len(args) == 3:
		return serveAlone(ctx, args[1], args[2])
	}
	return fmt.Errorf("what is %q?", args)
}

func run() error {
	if err := settle(); err != nil {
		return err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	_, role, _ := strings.Cut(string(line), "role=")
	words := strings.Split(strings.Fields(role)[0], ",")
	act := roles[words[0]]
	if act == nil {
		return fmt.Errorf("no role %q", words[0])
	}
	return act(context.Background(), words[1:])
}

// say reports to the test.
func say(words ...any) { fmt.Println(append([]any{guest.Mark}, words...)...) }

// settle mounts, loads modules, and brings up the loopback interface.
func settle() error {
	for _, m := range []struct{ kind, at string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	order, err := os.ReadFile("/modules/order")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		if err := load("/modules/" + name); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	os.Setenv("PATH", "/bin")
	os.Setenv("HOME", "/tmp")
	return loopback()
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// mountDisk mounts the disk at /data. The heuristics by which ext4 saves
// programs that forget to sync are turned off.
func mountDisk() error {
	var err error
	for range 100 { // the disk is found a moment behind its module
		if err = unix.Mount("/dev/vda", "/data", "ext4", 0, "noauto_da_alloc"); err != unix.ENOENT {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
