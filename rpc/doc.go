// Package rpc is the control plane's wire: JSON-RPC 2.0, one value a line.
//
// It holds the method names, the limits and the version of the protocol; a
// codec that reads and writes each message in one pass, with the limits in
// it; the mapping between params and the options of package sandbox, and
// between errors on the wire and [sandbox.Error], each in one place for each
// direction; the framing both ends share; and the client half, [Conn].
//
// What does not belong here: the dispatcher and everything that decides what
// a call may do (rpc/server), endpoints and raw bytes (dataport), and any
// retry or reconnect (adapter).
package rpc
