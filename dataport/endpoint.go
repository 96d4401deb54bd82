package dataport

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// The schemes of endpoints.
const (
	SchemeTCP         = "tcp"
	SchemeTLS         = "tls"
	SchemeUnix        = "unix"
	SchemeVsock       = "vsock"
	SchemeHybridVsock = "hybrid-vsock"
	SchemeMux         = "mux"
)

// AnyCID in a vsock endpoint's CID means that none was named.
const AnyCID = ^uint32(0)

// Endpoint is where a plane listens or is dialled.
type Endpoint struct {
	Scheme string
	Host   string // tcp, tls; empty: all addresses, or the one dialled for control
	Port   uint32 // tcp, tls, vsock, hybrid-vsock
	Path   string // unix, hybrid-vsock; absolute
	CID    uint32 // vsock
}

// ParseEndpoint reads one of
//
//	tcp://HOST:PORT  tls://HOST:PORT  unix:///PATH  vsock://CID:PORT
//	hybrid-vsock:///PATH:PORT  mux:
func ParseEndpoint(s string) (Endpoint, error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok {
		return Endpoint{}, fmt.Errorf("endpoint %q: no scheme", s)
	}
	if scheme == SchemeMux && rest == "" {
		return Endpoint{Scheme: SchemeMux}, nil
	}
	rest, ok = strings.CutPrefix(rest, "//")
	if !ok {
		return Endpoint{}, fmt.Errorf("endpoint %q: want scheme://", s)
	}
	e := Endpoint{Scheme: scheme}
	var err error
	switch scheme {
	case SchemeTCP, SchemeTLS:
		err = e.parseHostPort(rest)
	case SchemeUnix:
		err = e.parsePath(rest)
	case SchemeVsock:
		err = e.parseVsock(rest)
	case SchemeHybridVsock:
		path, port, found := cutLast(rest, ":")
		if !found {
			return Endpoint{}, fmt.Errorf("endpoint %q: want /PATH:PORT", s)
		}
		if err = e.parsePath(path); err == nil {
			e.Port, err = parsePort(port, 32)
		}
	default:
		err = fmt.Errorf("unknown scheme %q", scheme)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("endpoint %q: %w", s, err)
	}
	return e, nil
}

func (e *Endpoint) parseHostPort(s string) error {
	s = strings.TrimSuffix(s, "/")
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return err
	}
	e.Host = host
	e.Port, err = parsePort(port, 16)
	return err
}

func (e *Endpoint) parsePath(s string) error {
	path, err := url.PathUnescape(s)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(path, "/") || strings.ContainsRune(path, 0) {
		return fmt.Errorf("path %q is not absolute", s)
	}
	e.Path = path
	return nil
}

func (e *Endpoint) parseVsock(s string) error {
	cid, port, ok := strings.Cut(strings.TrimSuffix(s, "/"), ":")
	if !ok {
		return fmt.Errorf("want CID:PORT")
	}
	e.CID = AnyCID
	if cid != "" {
		n, err := strconv.ParseUint(cid, 10, 32)
		if err != nil {
			return fmt.Errorf("CID %q is no number", cid)
		}
		e.CID = uint32(n)
	}
	var err error
	e.Port, err = parsePort(port, 32)
	return err
}

func parsePort(s string, bits int) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("port %q is no port number", s)
	}
	return uint32(n), nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// String returns the endpoint as a URL that [ParseEndpoint] reads.
func (e Endpoint) String() string {
	port := strconv.FormatUint(uint64(e.Port), 10)
	switch e.Scheme {
	case SchemeTCP, SchemeTLS:
		return e.Scheme + "://" + net.JoinHostPort(e.Host, port)
	case SchemeUnix:
		return e.Scheme + "://" + (&url.URL{Path: e.Path}).EscapedPath()
	case SchemeVsock:
		if e.CID == AnyCID {
			return e.Scheme + "://:" + port
		}
		return e.Scheme + "://" + strconv.FormatUint(uint64(e.CID), 10) + ":" + port
	case SchemeHybridVsock:
		return e.Scheme + "://" + (&url.URL{Path: e.Path}).EscapedPath() + ":" + port
	}
	return e.Scheme + ":"
}

// Told returns the endpoint as clients are told it: a wildcard address without
// a host, so that a client puts in the one that it dialled.
func (e Endpoint) Told() string {
	if ip := net.ParseIP(strings.Trim(e.Host, "[]")); ip != nil && ip.IsUnspecified() {
		e.Host = ""
	}
	return e.String()
}

// Private tells whether only this machine (or its guests) can reach the
// endpoint: loopback, Unix and vsock.
func (e Endpoint) Private() bool {
	switch e.Scheme {
	case SchemeTCP, SchemeTLS:
		if e.Host == "localhost" {
			return true
		}
		ip := net.ParseIP(e.Host)
		return ip != nil && ip.IsLoopback()
	}
	return true
}

// Encrypted tells whether the endpoint speaks TLS.
func (e Endpoint) Encrypted() bool { return e.Scheme == SchemeTLS }
