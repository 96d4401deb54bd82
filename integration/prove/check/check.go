// Package check holds the invariants that hold whatever happens: a file is one
// of its versions, and nothing is left behind.
//
// What does not belong here: how anything comes about.
package check

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Digest is the SHA-256 of content in hex.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// FileDigest is the SHA-256 of what a file holds now.
func FileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Version returns the name of the version that a file holds, of those given by
// name and digest; an error is a file that is none of them.
func Version(path string, versions map[string]string) (string, error) {
	got, err := FileDigest(path)
	if err != nil {
		return "", err
	}
	for name, digest := range versions {
		if digest == got {
			return name, nil
		}
	}
	size := int64(-1)
	if st, err := os.Stat(path); err == nil {
		size = st.Size()
	}
	return "", fmt.Errorf("%s is none of its versions: %d bytes, SHA-256 %s", filepath.Base(path), size, got)
}

// Only tells whether a directory holds these names alone.
func Only(dir string, names ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, n := range names {
		known[n] = true
	}
	for _, e := range entries {
		if !known[e.Name()] {
			return fmt.Errorf("%s is left in the directory", e.Name())
		}
	}
	return nil
}

// Open returns what the descriptors of a process lead to.
func Open(pid int) ([]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var open []string
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil {
			open = append(open, to)
		}
	}
	return open, nil
}

// Temps counts the files in a directory that a process holds and that no name
// leads to, and those whose name is not known.
func Temps(pid int, dir string, known ...string) int {
	open, _ := Open(pid) // it may have ended
	n := 0
	for _, to := range open {
		if at, gone := strings.CutSuffix(to, " (deleted)"); gone && filepath.Dir(at) == dir {
			n++
		}
	}
	if Only(dir, known...) != nil {
		n++
	}
	return n
}

// stat is what /proc/PID/stat says of a process or of a thread, see proc(5).
type stat struct {
	name   string
	state  string // one letter; empty where there is none
	parent string
}

func readStat(file string) (s stat) {
	text, _ := os.ReadFile(file)
	// The name may hold anything, also what ends it.
	at := strings.LastIndex(string(text), ") ")
	if at < 0 {
		return s
	}
	_, s.name, _ = strings.Cut(string(text[:at]), "(")
	if fields := strings.Fields(string(text[at+2:])); len(fields) > 1 {
		s.state, s.parent = fields[0], fields[1]
	}
	return s
}

// Running tells whether a process lives; a zombie does not.
func Running(pid string) bool {
	state := readStat("/proc/" + pid + "/stat").state
	return state != "" && state != "Z"
}

// Ended tells whether a process has come to its end, but for what the kernel
// does not let go: no thread of it waits for anything else.
func Ended(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		if !strings.Contains("ZXD", readStat(file).state) {
			return false
		}
	}
	return true
}

// Memory is a figure of /proc/PID/status in bytes, such as VmRSS.
func Memory(pid int, figure string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, figure+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, figure)
}

// children returns the directories of /proc of a process's children, dead or
// not, that are as wanted.
func children(pid int, wanted func(s stat, dir string) bool) (dirs []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		s, dir := readStat(file), filepath.Dir(file)
		if s.parent == strconv.Itoa(pid) && wanted(s, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Children counts the living children of a process.
func Children(pid int) int {
	return len(children(pid, func(s stat, _ string) bool { return s.state != "Z" }))
}

// ChildrenOf returns the living children of a process among whose arguments is
// one with a part in it.
func ChildrenOf(pid int, part string) (pids []int) {
	for _, dir := range children(pid, func(s stat, dir string) bool {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		return s.state != "Z" && strings.Contains(string(line), part)
	}) {
		child, _ := strconv.Atoi(filepath.Base(dir))
		pids = append(pids, child)
	}
	return pids
}

// Zombies counts the dead children of a process that have a name and that it
// has not reaped.
func Zombies(pid int, name string) int {
	return len(children(pid, func(s stat, _ string) bool { return s.state == "Z" && s.name == name }))
}

// Eventually polls until done says nothing, or for a minute: then it returns
// what done said last.
func Eventually(ctx context.Context, done func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
