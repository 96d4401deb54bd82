//go:build linux

package proctree

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// tag is a bit of the personality that means nothing to any kernel. Unlike
// the mark it is a thread's, so no other part's child has it by mistake; but
// it has no room for a mark, and not everyone may read it.
const tag = 0x100

// askPersonality only asks for the personality.
const askPersonality = 0xffffffff

// tagged calls start on a thread with the tag, which the child inherits. Where
// the call is forbidden (as in some containers) there is no tag.
func tagged(start func() (*os.Process, error)) (*os.Process, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, askPersonality, 0, 0)
	if errno == 0 {
		if _, _, errno = unix.RawSyscall(unix.SYS_PERSONALITY, own|tag, 0, 0); errno == 0 {
			defer unix.RawSyscall(unix.SYS_PERSONALITY, own, 0, 0)
		}
	}
	return start()
}

// tagsWork tries it.
func tagsWork() (works bool) {
	tagged(func() (*os.Process, error) {
		is, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, askPersonality, 0, 0)
		works = errno == 0 && is&tag != 0
		return nil, nil
	})
	return works
}

func hasTag(pid int) bool {
	set, readable := readTag(pid)
	return readable && set
}

func readTag(pid int) (set, readable bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/personality")
	if err != nil {
		return false, false
	}
	bits, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 16, 64)
	return bits&tag != 0, err == nil
}

// envAllows tells whether a process has an environment string, or nothing in
// its environment but what a shell puts there by itself. It says so, too, when
// the environment cannot be read: the process is on its way out, and what it
// passed on has to be looked for, or it has become another user's.
func envAllows(pid int, entry string) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || holdsEntry(text, entry) {
		return true
	}
	for s := range bytes.SplitSeq(text, []byte{0}) {
		name, _, _ := bytes.Cut(s, []byte{'='})
		if !slices.Contains([]string{"", "PWD", "OLDPWD", "SHLVL", "_"}, string(name)) {
			return false
		}
	}
	return true
}
