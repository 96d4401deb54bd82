// Package work holds what runs apart from the connections that asked for it.
//
// A [Task] has a context of its own, and terms for the time in which nobody
// waits for it. [Execs] is the registry of a daemon's commands,
// each a task. [Keys] knows calls by their request keys: which run, what the
// last ones were answered, and which have been, also before a restart.
//
// What does not belong here: what the work is (rpc/server does it) and how it
// is asked for (package rpc).
package work
