package adapter

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
)

// aheadLife is how old a connection that was dialled ahead may be used: the
// server closes one on which no token has come within 5 s of its accept.
const aheadLife = 2 * time.Second

// ahead is a data connection that was dialled while its transfer was minted.
type ahead struct {
	conn net.Conn // nil: none
	err  error    // why there is none, where one was dialled
	at   dataport.Endpoint
	born time.Time
}

// dialAhead connects to where the transfer that is being minted will be
// opened. An error is left to the dial that then follows the mint.
func (s *Sandbox) dialAhead(ctx context.Context, l *link) ahead {
	endpoints := s.dataEndpoints(l, l.hello.Data)
	if l.mux != nil || len(endpoints) == 0 {
		return ahead{}
	}
	a := ahead{at: endpoints[0], born: time.Now()}
	a.conn, a.err = s.opts.Dial(ctx, a.at)
	return a
}

// fits tells whether the connection leads to the first of the endpoints and is
// young enough.
func (a ahead) fits(endpoints []dataport.Endpoint) bool {
	return a.conn != nil && len(endpoints) > 0 && endpoints[0] == a.at && time.Since(a.born) < aheadLife
}

// hung tells whether the dial to an endpoint took so long to fail that it is
// not tried again.
func (a ahead) hung(e dataport.Endpoint) bool {
	return a.err != nil && e == a.at && time.Since(a.born) >= aheadLife
}

func (a ahead) close() {
	if a.conn != nil {
		a.conn.Close()
	}
}

// open opens the data connection of a minted transfer, see [dataport.Open].
func (s *Sandbox) open(ctx context.Context, l *link, t *rpc.Transfer, a ahead, said func(net.Conn)) (net.Conn, error) {
	return dataport.Open(ctx, t.Token, s.dials(l, t, a), said)
}

// dials returns how to reach a minted transfer: over the connection that was
// dialled ahead, where it fits.
func (s *Sandbox) dials(l *link, t *rpc.Transfer, a ahead) []func(context.Context) (net.Conn, error) {
	type dial = func(context.Context) (net.Conn, error)
	if l.mux != nil {
		return []dial{dataport.MuxDial(l.mux)}
	}
	endpoints := s.dataEndpoints(l, t.Endpoints)
	if len(endpoints) == 0 && len(t.Endpoints) > 0 {
		a.close()
		return []dial{func(context.Context) (net.Conn, error) {
			return nil, fmt.Errorf("no data endpoint that goes with %s among %v", s.opts.Control, t.Endpoints)
		}}
	}
	if a.fits(endpoints) {
		return []dial{func(context.Context) (net.Conn, error) { return a.conn, nil }}
	}
	a.close()
	dials := make([]dial, len(endpoints))
	for i, e := range endpoints {
		dials[i] = func(ctx context.Context) (net.Conn, error) {
			if a.hung(e) {
				return nil, a.err
			}
			return s.opts.Dial(ctx, e)
		}
	}
	return dials
}
