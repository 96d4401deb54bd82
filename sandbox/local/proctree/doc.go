// Package proctree starts commands and holds the whole tree of processes that
// grows from each, so that nothing survives a kill: not a session of its own,
// not a double fork.
//
// A [Forest] holds trees in one of two ways. Where cgroup v2 is writable, pure
// or beside version 1, each tree has a cgroup of its own: membership cannot be
// left by forking, the kernel kills it as one. Elsewhere this process makes
// itself the subreaper of its descendants (once, for its whole life) and walks
// /proc.
//
// A [Keeper] is a process beside this one that outlives it for as long as it
// takes to end what it leaves when it is killed. Trees without cgroups are
// started by it, so that it is the subreaper of all that grows from them:
// nothing it has to end can leave it. It knows no trees; which one an orphan is
// of is found out here, and when it is killed itself its orphans come here.
//
// Either way each tree's processes inherit a mark, see marks, by which those
// are found that left cgroup, session, parent and environment behind, also
// after this process has died. They are born with it: trees that have cgroups
// side by side, told apart by slots until each has its own mark. A tree is
// called empty only after looks that can have missed nothing; what outlives the
// given time is killed on.
//
// A process that sets its own limit of file locks on purpose, after it has left
// everything else, gets away until the keeper ends; with one it falls, too, with
// the next tree that is told to end and was there before it. Where there are no
// marks, an orphan is told by its environment and falls with the first tree it
// fits.
//
// An adopted orphan is reaped by its number alone, never by a wait for any
// child, so that no status of another part of the program is taken away. A
// child of this process that another part started with a session of its own
// is taken for an orphan when it stays a zombie for two seconds, unless the
// mark tells at once.
//
// What does not belong here: shells, environments, output, time limits.
package proctree
