//go:build linux

package local

import (
	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox/local/proctree"
)

// Hide keeps other processes of the same user, commands among them, from this
// one's memory, environment and descriptors, and the kernel from writing a core
// of it. Root may look all the same. See PR_SET_DUMPABLE in prctl(2), and
// "Ptrace access mode checking" in ptrace(2).
func Hide() error {
	proctree.HoldScore()
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
