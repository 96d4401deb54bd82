package daemon

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPatience is how long a start waits for the lock of a state directory.
const lockPatience = 2 * time.Second

// descriptors is how many descriptors this process may have.
func descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}

// lockFile takes the lock of a state directory: two daemons on one would
// sweep each other's files. The lock goes with the process, and with what it
// had forked and not yet made a command of when it was killed: a moment later.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state-dir: %w", err)
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return f, nil
		}
		if time.Since(begun) > lockPatience {
			f.Close()
			return nil, fmt.Errorf("state-dir: another daemon uses it: %s is locked", path)
		}
	}
}
