//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/daemon"
)

// The words by which this program is something else than the first process.
const (
	wordDaemon = "daemon"
	wordKeep   = "keep"
)

// leavers are commands of which something would stay behind; each sleeps twice.
var leavers = []string{
	"sleep 1000 & sleep 1000",
	"busybox setsid sleep 1000 & sleep 1000",
	"(busybox setsid sleep 1000 &); sleep 1000",
	"busybox env -i /bin/busybox setsid /bin/sh -c 'sleep 1000' & sleep 1000",
	"trap '' TERM HUP INT; busybox setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000; sleep 1000' & sleep 1000",
}

// kept kills a daemon whose commands no cgroup holds, and tells what is left of
// them: with a keeper, and without for a control.
func kept(ctx context.Context, args []string) error {
	if args[0] == "missing" {
		if err := unix.Unmount("/sys/fs/cgroup", 0); err != nil {
			return err
		}
	}
	for _, with := range []string{wordKeep, "alone"} {
		if err := killBeside(ctx, args[0], with); err != nil {
			return fmt.Errorf("%s: %w", with, err)
		}
	}
	return nil
}

// killBeside kills one daemon.
func killBeside(ctx context.Context, cgroups, with string) error {
	d := exec.Command("/proc/self/exe", wordDaemon, cgroups, with)
	d.Stderr = os.Stderr
	out, err := d.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.Start(); err != nil {
		return err
	}
	defer d.Process.Kill()
	var control, secret string
	if _, err := fmt.Fscan(bufio.NewReader(out), &control, &secret); err != nil {
		return err
	}
	sb, err := adapter.New(adapter.Options{Control: control, Token: secret})
	if err != nil {
		return err
	}
	defer sb.Close()
	info, err := sb.Info(ctx)
	if err != nil {
		return err
	}
	for _, command := range leavers {
		go sb.Exec(ctx, command, sandbox.ExecOptions{})
	}
	if err := until(func() bool { return sleepers() == 2*len(leavers) }); err != nil {
		return fmt.Errorf("%d processes: %w", sleepers(), err)
	}
	if err := d.Process.Kill(); err != nil {
		return err
	}
	d.Wait()
	killed := time.Now()
	if with == wordKeep {
		until(func() bool { return sleepers() == 0 })
	}
	say("left", with, info.Tree, sleepers(), time.Since(killed).Milliseconds())
	return nil
}

// until polls for something that comes in a minute.
func until(done func() bool) error {
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("that never came")
		}
	}
	return nil
}

// serveAlone is a daemon in a process of its own, until it is killed.
func serveAlone(ctx context.Context, cgroups, with string) error {
	var keeper []string
	if with == wordKeep {
		keeper = []string{"/proc/self/exe", os.Args[0], wordKeep}
	}
	d, err := serveOn(ctx, "127.0.0.1", func(c *daemon.Config) {
		c.StateDir += with // what is left of one is not the other's
		if cgroups == "off" {
			c.Cgroups = cgroups
		}
	}, keeper...)
	if err != nil {
		return err
	}
	fmt.Println(d.control, d.secret)
	select {}
}
