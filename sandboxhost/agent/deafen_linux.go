package agent

import (
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deafen takes the runtime's handlers away from all signals that it does not
// need. To process 1 of a namespace the kernel gives no signal from there that
// it has no handler for, SIGKILL and SIGSTOP among them. With the handlers a
// dozen of them end it, and sigqueue(3) with a code of the sender's choice looks
// like a fault of its own. Children begin with the default anyway.
//
// faults says that commands cannot send it any. Then those that tell of faults
// of its own keep their handlers: without them it would end wordless.
func deafen(faults bool) error {
	// Needed, lest a write to a standard error that nobody reads end it.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	for sig := unix.Signal(1); sig <= lastSignal; sig++ {
		switch sig {
		case unix.SIGKILL, unix.SIGSTOP, // nobody has handlers for these
			unix.SIGPIPE, unix.SIGCHLD, unix.SIGURG: // the runtime, and who reaps
			continue
		case unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE:
			if faults {
				continue
			}
		}
		if err := byDefault(sig); err != nil {
			return os.NewSyscallError("rt_sigaction", err)
		}
	}
	return nil
}

const lastSignal = 64

// byDefault is sigaction(2) with SIG_DFL, which package signal does not offer
// for all: the kernel's struct sigaction of zeros.
func byDefault(sig unix.Signal) error {
	var none [4]uint64
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
