package dataport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/vsock"
)

// DeadPeerTimeout is how long bytes that a peer does not acknowledge may wait
// for it: TCP_USER_TIMEOUT of tcp(7).
const DeadPeerTimeout = 45 * time.Second

// A peer is probed after 15 s of silence, three times ten seconds apart, so that
// a dead one is found within 45 s.
const (
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 10 * time.Second
	keepAliveCount    = 3
)

// hybridTimeout bounds the CONNECT handshake of a hybrid vsock socket.
const hybridTimeout = 10 * time.Second

// Dialer dials endpoints.
type Dialer struct {
	// TLS is the configuration of tls endpoints; the ServerName is that of
	// the endpoint where it names none.
	TLS *tls.Config
}

// Dial connects to an endpoint. The connection is bare (*net.TCPConn,
// *net.UnixConn, ...) except with TLS. ctx bounds the dial alone.
func (d Dialer) Dial(ctx context.Context, e Endpoint) (net.Conn, error) {
	switch e.Scheme {
	case SchemeTCP:
		return dialTCP(ctx, e)
	case SchemeTLS:
		return d.dialTLS(ctx, e)
	case SchemeUnix:
		return new(net.Dialer).DialContext(ctx, "unix", e.Path)
	case SchemeVsock:
		if e.CID == AnyCID {
			return nil, fmt.Errorf("dial %s: no CID", e)
		}
		return vsock.DialContext(ctx, e.CID, e.Port, nil)
	case SchemeHybridVsock:
		return dialHybrid(ctx, e)
	}
	return nil, fmt.Errorf("dial %s: not an endpoint to dial", e)
}

func dialTCP(ctx context.Context, e Endpoint) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: KeepAlive()}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
}

// KeepAlive is how silent peers are probed, on both planes.
func KeepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount}
}

func (d Dialer) dialTLS(ctx context.Context, e Endpoint) (net.Conn, error) {
	raw, err := dialTCP(ctx, e)
	if err != nil {
		return nil, err
	}
	cfg := d.TLS.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.ServerName == "" {
		cfg.ServerName = e.Host
	}
	cfg.MinVersion = tls.VersionTLS13
	cfg.DynamicRecordSizingDisabled = true // which is for web pages
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// dialHybrid speaks the handshake of Firecracker's and Cloud Hypervisor's
// vsock socket: "CONNECT PORT\n" is answered "OK N\n". The answer is read
// byte by byte, because the guest's own bytes may follow it at once.
func dialHybrid(ctx context.Context, e Endpoint) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", e.Path)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(hybridTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err = hybridHandshake(conn, e.Port)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial %s: %w", e, err)
	}
	conn.SetDeadline(time.Time{})
	return conn, nil
}

func hybridHandshake(conn net.Conn, port uint32) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", port); err != nil {
		return err
	}
	line, err := readLine(conn, 32)
	if err != nil {
		return fmt.Errorf("no answer to CONNECT: %w", err)
	}
	n, ok := strings.CutPrefix(line, "OK ")
	if !ok {
		return fmt.Errorf("refused CONNECT: %q", line)
	}
	if _, err := strconv.ParseUint(n, 10, 32); err != nil {
		return fmt.Errorf("bad answer to CONNECT: %q", line)
	}
	return nil
}

// readLine reads up to and without '\n', one byte at a time and at most limit.
func readLine(conn net.Conn, limit int) (string, error) {
	line := make([]byte, 0, limit)
	var b [1]byte
	for len(line) < limit {
		n, err := conn.Read(b[:])
		if n == 1 {
			if b[0] == '\n' {
				return string(line), nil
			}
			line = append(line, b[0])
			continue
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("line of more than %d bytes", limit)
}
