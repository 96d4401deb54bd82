package dataport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/mdlayher/vsock"
)

// ListenOptions say who may connect to a listener, and how.
type ListenOptions struct {
	// TLS returns, on tls, the configuration of the next connection.
	TLS func() *tls.Config
	// AllowFrom lists, on tcp, the networks whose peers are accepted; empty
	// means all.
	AllowFrom []netip.Prefix
	// AllowUID decides, on Unix sockets, whose processes are accepted; nil
	// takes those of this process's own user and of root.
	AllowUID func(uid uint32) bool
	// AnyUser accepts whoever can open a Unix socket, for systems that do not
	// tell whose processes peers are, and servers that ask for a secret.
	AnyUser bool
	// AllowCID decides, on vsock, which guests are accepted; nil takes none.
	AllowCID func(cid uint32) bool
	// Refused, where not nil, is told of every peer that was not accepted.
	Refused func(net.Addr)
}

// Listen listens on an endpoint. A Unix socket is made with mode 0600; one
// left behind by a process that is gone is replaced. On tls the handshake is
// left to the first use of a connection, so that Accept never waits for a
// peer; see [Trust]. Connections are bare except with TLS.
func Listen(e Endpoint, o ListenOptions) (net.Listener, error) {
	if e.Scheme == SchemeTLS && o.TLS == nil {
		return nil, fmt.Errorf("listen %s: no certificate", e)
	}
	var ln net.Listener
	var err error
	switch e.Scheme {
	case SchemeTCP, SchemeTLS:
		ln, err = listenTCP(e)
	case SchemeUnix:
		ln, err = listenUnix(e.Path)
	case SchemeVsock:
		ln, err = vsock.ListenContextID(e.CID, e.Port, nil)
	default:
		err = fmt.Errorf("listen %s: not an endpoint to listen on", e)
	}
	if err != nil {
		return nil, err
	}
	return Take(ln, e, o)
}

// ListenURL listens on the endpoint of a URL and returns it with the port that
// was picked.
func ListenURL(u string, o ListenOptions) (net.Listener, Endpoint, error) {
	e, err := ParseEndpoint(u)
	if err != nil {
		return nil, e, err
	}
	ln, err := Listen(e, o)
	if err != nil {
		return nil, e, err
	}
	if addr, ok := ln.Addr().(*net.TCPAddr); ok {
		e.Port = uint32(addr.Port)
	}
	return ln, e, nil
}

// Take has a listener that is open already accept as the one of an endpoint
// would.
func Take(ln net.Listener, e Endpoint, o ListenOptions) (net.Listener, error) {
	switch {
	case e.Scheme == SchemeTLS && o.TLS == nil:
		return nil, fmt.Errorf("listen %s: no certificate", e)
	case e.Scheme == SchemeTLS:
		return &tlsListener{ln, o.TLS}, nil
	case e.Scheme == SchemeUnix:
		return &pickyListener{ln, o.ofUser, o.Refused}, nil
	case e.Scheme == SchemeVsock:
		return &pickyListener{ln, o.ofGuest, o.Refused}, nil
	case len(o.AllowFrom) > 0:
		return &pickyListener{ln, o.fromNetworks, o.Refused}, nil
	}
	return ln, nil
}

func listenTCP(e Endpoint) (net.Listener, error) {
	lc := listenConfig()
	return lc.Listen(context.Background(), "tcp", net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
}

func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("listen unix %s: in use by a living process", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// pickyListener closes at once what it does not allow.
type pickyListener struct {
	net.Listener
	allow   func(net.Conn) bool
	refused func(net.Addr)
}

// Accept implements net.Listener.
func (l *pickyListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.allow(conn) {
			return conn, nil
		}
		from := conn.RemoteAddr()
		conn.Close()
		if l.refused != nil {
			l.refused(from)
		}
	}
}

func (o ListenOptions) fromNetworks(conn net.Conn) bool {
	addr, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := addr.AddrPort().Addr().Unmap().WithZone("")
	for _, network := range o.AllowFrom {
		if network.Contains(ip) {
			return true
		}
	}
	return false
}

func (o ListenOptions) ofUser(conn net.Conn) bool {
	if o.AnyUser {
		return true
	}
	uid, known := PeerUID(conn)
	if !known {
		return false
	}
	if o.AllowUID != nil {
		return o.AllowUID(uid)
	}
	return uid == 0 || int(uid) == os.Geteuid()
}

func (o ListenOptions) ofGuest(conn net.Conn) bool {
	addr, ok := conn.RemoteAddr().(*vsock.Addr)
	return ok && o.AllowCID != nil && o.AllowCID(addr.ContextID)
}
