// Package local is the sandbox on the machine itself: its file system and its
// /bin/sh. It is what an agent runtime uses in development, and what the
// server inside of every isolated place serves. It is no boundary by itself:
// a command can do what this process may do.
//
// Files are reached by descriptors that package root opens, never by a path
// that was looked at before. A write goes to a file without a name and is
// renamed over its target whole. Commands are held by package proctree.
//
// It needs Linux with /proc mounted. On other systems New returns an error of
// kind unsupported.
//
// What does not belong here: wires, tokens, transfers, tenants.
package local
