// Package strangers connects and never says who it is: silent, byte by byte, or
// with more than anybody wants. Its sources are many, in 127.9.0.0/16.
//
// What does not belong here: what a daemon owes to those it knows.
package strangers

import (
	"context"
	"io"
	"net"
	"strings"
	"time"
)

// Dial connects from the n-th source to host:port. The caller closes it.
func Dial(ctx context.Context, n int, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, byte(n>>8), byte(n))}}
	return d.DialContext(ctx, "tcp", addr)
}

// Guise is how a stranger begins.
type Guise struct {
	// Data says that it comes to the data plane, else to the control plane.
	Data  bool
	Begin string
}

// Guises are calls and preambles that begin well and such that do not.
func Guises() []Guise {
	return []Guise{
		{Begin: "{"}, {Begin: ""}, {Begin: `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n{"},
		{Data: true, Begin: "C"}, {Data: true, Begin: "CTRLD1 " + strings.Repeat("A", 43) + "\n"}, {Data: true, Begin: "x"},
	}
}

// Push sends what a stranger begins with and junk from the n-th source, and
// waits until the connection is ended, for patience at most. An error is one of
// the dial alone: what becomes of the bytes is no matter.
func Push(ctx context.Context, n int, addr, begin string, junk []byte, patience time.Duration) error {
	conn, err := Dial(ctx, n, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, begin)
	conn.Write(junk)
	io.Copy(io.Discard, conn) // the daemon reads on for a while
	return nil
}
