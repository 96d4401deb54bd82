// Package sandboxhost keeps the sandboxes of a host: who the tenants are and
// what their tokens open, which sandboxes live, what each tenant may use. It
// works in process, as [Host.Backend], and behind a control port, as the
// server.Host of package rpc/server.
//
// How a sandbox is isolated is a [Driver]'s business, one folder each below
// driver/. What does not belong here: listeners, configuration files and
// signals, which are package daemon's.
package sandboxhost
