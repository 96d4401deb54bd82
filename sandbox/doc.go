// Package sandbox is the contract: the one interface through which an agent
// runtime reads files, writes files and runs commands, whatever stands behind
// it, the machine itself or an isolated place far away.
//
// [API] has the eleven methods a runtime uses. [Backend] is what a server
// serves: the same methods plus the two opens that hand out bytes without
// copying them. [Error] carries one [Kind] of a closed list; errors.Is holds
// with io/fs errors and errnos on every implementation alike.
//
// What does not belong here: any machinery. The package imports the standard
// library only, starts no goroutine that outlives its caller's interest and
// knows nothing of wires, sockets or processes.
package sandbox
