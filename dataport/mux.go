package dataport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// MuxWindow is the receive window of one stream: what a stalled stream may
// cost.
const MuxWindow = 1 << 20

// muxConfig is that of both sides. Keepalive is the control connection's own.
func muxConfig(writeTimeout time.Duration) *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.MaxStreamWindowSize = MuxWindow
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
	return func(context.Context) (net.Conn, error) {
		stream, err := s.OpenStream()
		if err != nil {
			return nil, err
		}
		return NewMuxStream(stream), nil
	}
}

// MuxStream is a stream of a session as a net.Conn: its Close ends both
// directions and every call that is blocked. yamux's own Close ends the
// sending side alone.
type MuxStream struct {
	*yamux.Stream
	closed atomic.Bool
}

// NewMuxStream returns the stream as a net.Conn.
func NewMuxStream(s *yamux.Stream) *MuxStream { return &MuxStream{Stream: s} }

// CloseWrite ends the sending side.
func (s *MuxStream) CloseWrite() error { return s.Stream.Close() }

// Close ends the stream. What the peer still sends is dropped.
func (s *MuxStream) Close() error {
	s.closed.Store(true)
	err := s.Stream.Close()
	s.Stream.SetDeadline(time.Unix(1, 0))
	return err
}

// Read implements net.Conn.
func (s *MuxStream) Read(p []byte) (int, error) {
	if s.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := s.Stream.Read(p)
	if err != nil && s.closed.Load() {
		err = net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (s *MuxStream) Write(p []byte) (int, error) {
	if s.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := s.Stream.Write(p)
	if err != nil && s.closed.Load() {
		err = net.ErrClosed
	}
	return n, err
}

// SetDeadline implements net.Conn. A stream that is closed keeps the one that
// has passed.
func (s *MuxStream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (s *MuxStream) SetReadDeadline(t time.Time) error {
	if s.closed.Load() {
		return net.ErrClosed
	}
	return s.Stream.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (s *MuxStream) SetWriteDeadline(t time.Time) error {
	if s.closed.Load() {
		return net.ErrClosed
	}
	return s.Stream.SetWriteDeadline(t)
}
