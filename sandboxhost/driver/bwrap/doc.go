// Package bwrap is the driver that makes sandboxes with bubblewrap: namespaces
// of all kinds, the host's /usr read-only, a system call filter, no
// capabilities, no privileges ever again. It needs no privilege itself, so it
// works for an ordinary user.
//
// What it does not hold: memory, processes and processors; a sandbox uses what
// its user may. See docs/drivers.md.
package bwrap
