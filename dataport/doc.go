// Package dataport moves raw bytes: endpoints and how to dial and listen on
// them (TCP, TLS, Unix, AF_VSOCK, hybrid vsock, a yamux session), the preamble
// of a data connection, and the pumps between sockets and files.
//
// A data connection belongs to one transfer. Who may have it is decided by a
// [Claim] that is handed in; how a transfer ends is package transfer's.
// Nothing here parses JSON, and nothing here wraps a *net.TCPConn: a wrapper
// would hide sendfile and splice from the standard library.
package dataport
