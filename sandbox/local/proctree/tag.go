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

// The tag is a bit of the personality that means nothing to any kernel, and
// those above it are a slot's number. Unlike the mark it is a thread's, so no
// other part's child has it by mistake; but it has no room for a mark, and not
// everyone may read it.
const (
	tag      = 0x100
	slotBit  = 9
	maxSlot  = 1<<8 - 1
	tagBits  = tag | maxSlot<<slotBit
	untagged = -1
)

// askPersonality only asks for the personality.
const askPersonality = 0xffffffff

// tagged calls start on a thread with the tag, which the child inherits. Where
// the call is forbidden (as in some containers) there is no tag.
func tagged(slot int, start func() (*os.Process, error)) (*os.Process, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, askPersonality, 0, 0)
	if errno == 0 {
		with := own&^tagBits | tag | uintptr(slot)<<slotBit
		if _, _, errno = unix.RawSyscall(unix.SYS_PERSONALITY, with, 0, 0); errno == 0 {
			defer unix.RawSyscall(unix.SYS_PERSONALITY, own, 0, 0)
		}
	}
	return start()
}

// tagsWork tries it.
func tagsWork() (works bool) {
	tagged(maxSlot, func() (*os.Process, error) {
		is, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, askPersonality, 0, 0)
		works = errno == 0 && is&tagBits == tagBits
		return nil, nil
	})
	return works
}

func hasTag(pid int) bool {
	slot, readable := readTag(pid)
	return readable && slot != untagged
}

// readTag returns the slot of a process with the tag, 0 where that has none.
func readTag(pid int) (slot int, readable bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/personality")
	if err != nil {
		return untagged, false
	}
	bits, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 16, 64)
	if bits&tag == 0 {
		return untagged, err == nil
	}
	return int(bits >> slotBit & maxSlot), err == nil
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
