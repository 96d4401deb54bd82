package server

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc/server/gate"
	"github.com/controld/controld/transfer"
)

// guest is a visitor with the place that it takes until it has authenticated.
type guest struct {
	Visitor
	place *gate.Place // nil of a connection that the server did not accept
}

// admit serves a connection that was accepted, or closes it at once. It does
// not wait for the peer.
func (s *Server) admit(ctx context.Context, nc net.Conn, planes Planes) {
	g := &guest{Visitor: Visitor{Addr: nc.RemoteAddr(), Source: gate.SourceOf(nc)}}
	bare := dataport.Bare(nc)
	if s.keptOut(nc, planes, g.Source) {
		bare.Close()
		return
	}
	place, ok := s.cfg.Gate.Enter(g.Source, func() { bare.Close() })
	if !ok {
		bare.Close()
		return
	}
	g.place = place
	go s.visit(ctx, nc, planes, g)
}

// keptOut tells whether a source is refused before it has said anything. After
// too many hellos it is not: hello is answered.
func (s *Server) keptOut(nc net.Conn, planes Planes, from gate.Source) bool {
	if dataport.TLSOf(nc) != nil && s.cfg.Gate.Wait(gate.Handshake, from) > 0 {
		return true
	}
	return planes == Data && s.cfg.Gate.Wait(gate.Token, from) > 0
}

// shakeHands runs the handshake of TLS, where there is one, in the time of
// hello, and closes the connection where it fails.
func (s *Server) shakeHands(nc net.Conn, g *guest, deadline time.Time) bool {
	layer := dataport.TLSOf(nc)
	if layer == nil {
		return true
	}
	nc.SetDeadline(deadline)
	if err := layer.Handshake(); err != nil {
		if !wentAway(err) {
			s.cfg.Gate.Failed(gate.Handshake, g.Source)
		}
		dataport.CloseLinger(dataport.Bare(nc)) // or the peer would not learn why
		return false
	}
	dataport.Trust(nc)
	nc.SetWriteDeadline(time.Time{})
	if certs := layer.ConnectionState().PeerCertificates; len(certs) > 0 {
		g.Certificate = certs[0]
	}
	return true
}

// wentAway tells whether a handshake ended because its peer did: that is how
// others look whether a port is open.
func wentAway(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &ne)
}

// claims are those of the data port (session nil) or of the streams of one
// multiplexed session.
func (s *Server) claims(session any, g *guest) dataport.Claims {
	mine := s.openTo(g)
	c := dataport.Claims{Bytes: func(token string) (dataport.Handler, error) {
		t, err := s.cfg.Transfers.ClaimOf(token, session, mine)
		if err != nil {
			return nil, s.noToken(g, err)
		}
		g.place.Leave()
		return &dataConn{t: t, pump: s.cfg.Pump}, nil
	}}
	if s.cfg.PassFiles == nil {
		return c
	}
	c.File = func(token string) (dataport.Handler, error) {
		t, err := s.cfg.Transfers.Look(token, session, mine)
		if err != nil {
			return nil, s.noToken(g, err)
		}
		file, err := passable(t, *s.cfg.PassFiles)
		if err != nil {
			return nil, err
		}
		if _, err := s.cfg.Transfers.ClaimOf(token, session, mine); err != nil {
			return nil, s.noToken(g, err)
		}
		g.place.Leave()
		return &lease{t: t, file: file}, nil
	}
	return c
}

// noToken notes a token that was never minted.
func (s *Server) noToken(g *guest, err error) error {
	if errors.Is(err, transfer.ErrNeverMinted) {
		s.cfg.Gate.Failed(gate.Token, g.Source)
	}
	return err
}

// openTo tells whose transfers are open to a guest; nil is everybody's.
func (s *Server) openTo(g *guest) func(tenant string) bool {
	if g.Certificate == nil {
		return nil
	}
	own, err := s.cfg.CertificateTenant(g.Certificate)
	return func(tenant string) bool { return err == nil && tenant == own }
}
