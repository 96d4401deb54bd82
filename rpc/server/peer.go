package server

import (
	"net"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// peer is what limits count as one connection: a connection that said hello,
// or a multiplexed session with all its streams.
type peer struct {
	s       *Server
	session *Session
	budget  *budget
	limits  sandbox.Limits
	lane    lane
	mux     bool
	local   net.Addr
}

func newPeer(s *Server, session *Session, local net.Addr, mux bool) *peer {
	p := &peer{s: s, session: session, local: local, mux: mux}
	p.limits = s.cfg.Limits
	lower(&p.limits.MaxBufferedBytes, session.Info.Limits.MaxBufferedBytes)
	lower(&p.limits.MaxOutputBytes, session.Info.Limits.MaxOutputBytes)
	p.budget = s.budgets.open(session.Tenant)
	p.lane.limits = &p.limits
	return p
}

func lower(v *int64, other int64) {
	if other > 0 {
		*v = min(*v, other)
	}
}

func (p *peer) release() {
	p.s.budgets.close(p.session.Tenant)
	if p.session.Release != nil {
		p.session.Release()
	}
}

// binding is what the tokens minted by this peer are bound to.
func (p *peer) binding() any {
	if p.mux {
		return p
	}
	return nil
}

// endpoints are where the transfers of this peer are opened.
func (p *peer) endpoints() []string {
	if p.mux {
		return []string{rpc.MuxEndpoint}
	}
	return p.s.cfg.DataURLs(p.local)
}

// greeting is the answer to hello.
func (p *peer) greeting() *rpc.HelloResult {
	info := p.session.Info
	info.Tenant, info.Sandbox = p.session.Tenant, p.session.Sandbox
	info.Limits = p.limits
	if p.session.Epoch != "" {
		info.Epoch = p.session.Epoch
	}
	info.Capabilities = append([]string(nil), info.Capabilities...)
	for _, own := range append([]string{sandbox.CapBatch, sandbox.CapMux}, p.s.cfg.Capabilities...) {
		found := false
		for _, have := range info.Capabilities {
			found = found || have == own
		}
		if !found {
			info.Capabilities = append(info.Capabilities, own)
		}
	}
	return &rpc.HelloResult{
		Protocol: rpc.ProtocolVersion,
		Server:   p.s.cfg.ServerName,
		Data:     p.s.cfg.DataURLs(p.local),
		Info:     info,
	}
}
