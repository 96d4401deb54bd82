package dataport

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

// muxWindow is the receive window of one stream: what a stalled stream may
// cost.
const muxWindow = 1 << 20

// muxConfig is that of both sides. Keepalive is the control connection's own.
func muxConfig(writeTimeout time.Duration) *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.MaxStreamWindowSize = muxWindow
	cfg.EnableKeepAlive = false
	cfg.ConnectionWriteTimeout = writeTimeout
	cfg.StreamCloseTimeout = time.Minute
	cfg.LogOutput = io.Discard
	return cfg
}

// MuxServer speaks the accepting side of yamux on conn, which it closes with
// the session.
func MuxServer(conn io.ReadWriteCloser, writeTimeout time.Duration) (*yamux.Session, error) {
	return yamux.Server(conn, muxConfig(writeTimeout))
}

// MuxClient speaks the opening side of yamux on conn.
func MuxClient(conn io.ReadWriteCloser, writeTimeout time.Duration) (*yamux.Session, error) {
	return yamux.Client(conn, muxConfig(writeTimeout))
}

// MuxDial returns how to open a stream on a session.
func MuxDial(s *yamux.Session) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) { return s.OpenStream() }
}
