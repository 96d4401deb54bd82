package goals

import "syscall"

// descriptors lets this process and those that it starts have so many
// descriptors, or as many as it may, and returns how many that are.
func descriptors(want uint64) int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	if l.Max < want && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: want, Max: want}) == nil {
		return int(want)
	}
	return int(min(l.Max, want))
}
