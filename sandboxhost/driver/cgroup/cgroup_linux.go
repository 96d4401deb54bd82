// Package cgroup reads what the kernel says of the cgroup of a sandbox, with
// the controllers of version 1, of version 2, or some of each: memory,
// processes, time on processors, and whether it ran out of memory.
//
// What does not belong here: making cgroups, which runtimes do.
package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mounted is where cgroups are.
const mounted = "/sys/fs/cgroup"

// Group is the path of a cgroup below every controller, such as /a/b.
type Group string

// Stats are what the processes of a group use.
type Stats struct {
	CPU       time.Duration
	Memory    int64 // bytes
	Processes int64
}

// Of returns the group that holds the memory of a process.
func Of(pid int) Group {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	var unified Group
	for line := range strings.Lines(string(text)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		if slices.Contains(strings.Split(controllers, ","), "memory") {
			return Group(path)
		}
		if id == "0" {
			unified = Group(path)
		}
	}
	return unified
}

// file returns the path of one of a group's files: that of version 1, below the
// controller, where there is one.
func (g Group) file(controller, v1, v2 string) string {
	first := filepath.Join(mounted, controller)
	if _, err := os.Stat(first); err == nil {
		return filepath.Join(first, string(g), v1)
	}
	return filepath.Join(mounted, string(g), v2)
}

// Stats reads what the group uses now.
func (g Group) Stats() (Stats, error) {
	var s Stats
	var errs [3]error
	s.Memory, errs[0] = number(g.file("memory", "memory.usage_in_bytes", "memory.current"))
	s.Processes, errs[1] = number(g.file("pids", "pids.current", "pids.current"))
	s.CPU, errs[2] = g.cpu()
	return s, errors.Join(errs[:]...)
}

func (g Group) cpu() (time.Duration, error) {
	path := g.file("cpuacct", "cpuacct.usage", "cpu.stat")
	if filepath.Base(path) == "cpuacct.usage" {
		ns, err := number(path)
		return time.Duration(ns), err
	}
	us, err := field(path, "usage_usec")
	return time.Duration(us) * time.Microsecond, err
}

// OOMKills counts the processes that were killed since the group had no more
// memory; 0 where that cannot be read.
func (g Group) OOMKills() int64 {
	n, err := field(g.file("memory", "memory.oom_control", "memory.events"), "oom_kill")
	if err != nil {
		return 0
	}
	return n
}

// Throttled is for how long the group had to wait since it had used its share
// of the processors.
func (g Group) Throttled() (time.Duration, error) {
	path := g.file("cpu", "cpu.stat", "cpu.stat")
	if ns, err := field(path, "throttled_time"); err == nil {
		return time.Duration(ns), nil
	}
	us, err := field(path, "throttled_usec")
	return time.Duration(us) * time.Microsecond, err
}

// Thaw has frozen processes go on.
func (g Group) Thaw() error {
	path := g.file("freezer", "freezer.state", "cgroup.freeze")
	word := "0"
	if filepath.Base(path) == "freezer.state" {
		word = "THAWED"
	}
	if err := os.WriteFile(path, []byte(word), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// number reads a file that holds one.
func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// field reads the number behind a name, of a file of such lines.
func field(path, name string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if key, value, _ := strings.Cut(lines.Text(), " "); key == name {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}
