package goals

import "syscall"

// numbers are the error numbers that system calls fail with.
var numbers = map[string]syscall.Errno{
	"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "EACCES": syscall.EACCES, "EPERM": syscall.EPERM, "ENOMEM": syscall.ENOMEM,
	"EMFILE": syscall.EMFILE, "ENFILE": syscall.ENFILE, "EROFS": syscall.EROFS, "EDQUOT": syscall.EDQUOT, "EBUSY": syscall.EBUSY,
}
