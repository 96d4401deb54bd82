// Package agent is the server inside a sandbox: both planes on one address, one
// secret, the place itself behind it, and a workload beside it that may be
// hostile.
//
// Of the image that it runs in it needs /proc and /dev/null, nothing else: no
// directory for temporary files, no home, no list of users. The shell is the
// commands'.
//
// As process 1 of a namespace of processes, see [Brace], nothing that a command
// sends ends it, and all commands end with it. Its host ends it from outside, by
// SIGKILL.
//
// What does not belong here: the configuration, the log and the metrics of a
// daemon, and whatever else would make the program large that is put into every
// sandbox.
package agent
