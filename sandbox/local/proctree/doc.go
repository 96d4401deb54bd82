// Package proctree starts commands and holds the whole tree of processes that
// grows from each, so that nothing survives a kill: not a session of its own,
// not a double fork.
//
// A [Forest] holds trees in one of two ways. Where cgroup v2 is writable, pure
// or beside version 1, each tree has a cgroup of its own: membership cannot be
// left by forking, the kernel kills it as one. Elsewhere this process makes
// itself the subreaper of its descendants (once, for its whole life) and walks
// /proc. The walk is the weaker way: an orphan that left its session before
// any walk saw it is told by what it inherited, and where several trees may be
// its origin it falls with the first of them.
//
// An adopted orphan is reaped by its number alone, never by a wait for any
// child, so that no status of another part of the program is taken away. A
// child of this process that another part started with a session of its own
// is taken for an orphan when it stays a zombie for two seconds.
//
// What does not belong here: shells, environments, output, time limits.
package proctree
