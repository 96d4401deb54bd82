// Package daemon is the one composition of controld: configuration, listeners,
// tenants, the control and the data plane, the admin port, drain. The command
// line, an embedded daemon and the integration tests all run [New] and
// [Daemon.Run].
//
// What does not belong here: flags and signals (cmd/controld), and anything
// that one of the rooms below does by itself.
package daemon
