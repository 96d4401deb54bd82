package server

import (
	"net"
	"slices"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/work"
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
	last    workload         // calls that are answered behind the end of the sandbox
	keys    *work.TenantKeys // nil without the capability
	// passesKeys tells that the backend knows calls by their keys as well.
	passesKeys bool
}

func newPeer(s *Server, session *Session, local net.Addr, mux bool) *peer {
	p := &peer{s: s, session: session, local: local, mux: mux}
	p.limits = s.cfg.Limits
	lower(&p.limits.MaxBufferedBytes, session.Info.Limits.MaxBufferedBytes)
	lower(&p.limits.MaxOutputBytes, session.Info.Limits.MaxOutputBytes)
	p.budget = s.budgets.open(session.Tenant)
	p.lane.limits = &p.limits
	p.passesKeys = slices.Contains(session.Info.Capabilities, sandbox.CapKeys)
	p.limits.KeptKeys = 0
	if keys := s.cfg.Keys; keys != nil {
		p.keys = keys.Tenant(session.Tenant)
		p.limits.KeptKeys = keys.Remembered()
	} else {
		p.limits.ReconnectGrace = 0
	}
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

// life names what keys are remembered for beside the sandbox, see
// [work.TenantKeys.Begin].
func (p *peer) life() string {
	if !p.passesKeys {
		return ""
	}
	return p.session.Life
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
	info.Capabilities = p.capabilities()
	return &rpc.HelloResult{
		Protocol: rpc.ProtocolVersion,
		Server:   p.s.cfg.ServerName,
		Data:     p.s.cfg.DataURLs(p.local),
		Info:     info,
	}
}

// capabilities are the backend's and the server's own; keys, the passing of
// files, how data may travel and sandboxes are the server's alone.
func (p *peer) capabilities() []string {
	own := append([]string{sandbox.CapBatch, sandbox.CapMux}, p.s.cfg.Capabilities...)
	if p.keys != nil {
		own = append(own, sandbox.CapKeys)
	}
	if p.s.sandboxes != nil {
		own = append(own, sandbox.CapSandboxes)
	}
	if p.s.cfg.PassFiles != nil {
		own = append(own, sandbox.CapPassFiles)
	}
	var all []string
	for _, c := range p.session.Info.Capabilities {
		switch c {
		case sandbox.CapKeys, sandbox.CapPassFiles, sandbox.CapPlainData, sandbox.CapSandboxes:
			continue
		}
		if !slices.Contains(own, c) {
			all = append(all, c)
		}
	}
	return append(all, own...)
}
