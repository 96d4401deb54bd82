// Package faultfs is a file system for tests: a directory passed through, in
// which chosen calls fail, stand still, are slow, or lie, as disks and network
// file systems do. It is mounted for one program and its children alone, so
// that nobody else on the machine meets it and nothing of it outlives them.
//
// What does not belong here: what a daemon should make of it, and faults of
// single system calls, which strace(1) injects.
package faultfs
