//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/daemon"
)

// What a command may use in the machine with limits.
const (
	memoryMost    = 32 << 20
	processesMost = 16
)

// limits runs commands that want more than they may have, beside others that
// do not.
func limits(ctx context.Context, args []string) error {
	if err := place(args[0]); err != nil {
		return err
	}
	sb, end, err := serve(ctx, func(c *daemon.Config) { c.ExecMemory, c.ExecProcesses = memoryMost, processesMost })
	if err != nil {
		return err
	}
	defer end()
	info, err := sb.Info(ctx)
	if err != nil {
		return err
	}
	say("tree", info.Tree)
	for name, command := range map[string]string{
		"modest": "echo fine",
		"memory": "x=0123456789; while :; do x=$x$x; done",
		"below":  "(x=0123456789; while :; do x=$x$x; done) & wait; sleep 1000",
		"forks":  "f() { sleep 1000 & f; }; f 2>/dev/null; echo unreached",
	} {
		if err := one(ctx, sb, name, command); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// one runs a command and says how it ended.
func one(ctx context.Context, sb sandbox.Backend, name, command string) error {
	r, err := sb.Exec(ctx, command, sandbox.ExecOptions{Timeout: 20e9})
	if err != nil {
		return err
	}
	say("exec", name, r.Reason, r.ExitCode, r.Signal+"-", strings.TrimSpace(string(r.Stdout))+"-")
	return nil
}

// place puts this process into a cgroup of its own, as a service manager would
// do, or leaves it in the root.
func place(where string) error {
	if where == "root" {
		return nil
	}
	// A service manager hands the controllers down.
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory +pids"), 0); err != nil {
		return err
	}
	if err := os.Mkdir("/sys/fs/cgroup/service", 0o755); err != nil {
		return err
	}
	return os.WriteFile("/sys/fs/cgroup/service/cgroup.procs", []byte("1"), 0)
}
