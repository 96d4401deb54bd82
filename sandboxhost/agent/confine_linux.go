package agent

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox/local/landlock"
)

// Confine has this process start anew, with args for its arguments, where it and
// its commands can change no files but those and what is beneath those
// directories, see [landlock.Restrict]. Landlock is a thread's: started anew all
// threads are of the one domain, so that they may signal each other's commands.
// It returns where that cannot be: nil where the kernel has no Landlock, of which
// it tells.
func Confine(writable, args []string) error {
	runtime.LockOSThread() // what is restricted and what starts anew
	err := landlock.Restrict(writable)
	if errors.Is(err, landlock.ErrNone) {
		fmt.Fprintf(os.Stderr, "controld: agent: %v\n", err)
		return nil
	}
	if err != nil {
		return err
	}
	return os.NewSyscallError("execve", unix.Exec("/proc/self/exe", args, os.Environ()))
}
