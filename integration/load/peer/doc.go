// Package peer holds the Go programs that controld is measured against: a bare
// pair of sendfile and splice, one of loops over crypto/tls, gRPC-Go, sourcegraph/jsonrpc2 and net/http. Each
// has a server, for a process of its own, and the calls of its client. They do
// the same work at the far end as the daemon's calls that stand beside them in
// a row, and nothing more.
//
// What does not belong here: measuring.
package peer

import (
	"fmt"
	"net"
)

// The kinds of servers.
const (
	Bare    = "bare"
	BareTLS = "bare over TLS"
	GRPC    = "grpc"
	RPC2    = "jsonrpc2"
	HTTP    = "http"
	message = 1 << 20 // bytes of one message of a stream
)

// Serve serves one kind on l until l is closed. BareTLS shows the certificate of
// the file identity.
func Serve(kind string, l net.Listener, identity string) error {
	switch kind {
	case Bare:
		return serveBare(l)
	case BareTLS:
		return serveBareTLS(l, identity)
	case GRPC:
		return serveGRPC(l)
	case RPC2:
		return serveRPC2(l)
	case HTTP:
		return serveHTTP(l)
	}
	return fmt.Errorf("no peer is called %q", kind)
}
