// Package launch is what drivers share that start an agent as processes of this
// host: the socket it is handed, its command line, and the process itself, held
// by descriptor and found again by another life of the host.
//
// What does not belong here: namespaces, containers, limits.
package launch
