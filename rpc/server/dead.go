package server

import (
	"time"

	"github.com/controld/controld/dataport"
)

// watchPeers looks after the control connections until the server closes. The
// system alone notices a dead peer too late: keepalive stops where something
// is to be sent, and what then bounds that begins anew with it, see tcp(7),
// TCP_USER_TIMEOUT. So an answer to a peer that had died 44 s ago would make it
// another 45 s.
func (s *Server) watchPeers() {
	tick := time.NewTicker(dataport.PeerDeadTick)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
		for _, c := range s.allControls() {
			if dataport.PeerDead(c.nc) {
				dataport.Bare(c.nc).Close() // TLS might wait to say goodbye
			}
		}
	}
}

// watch has somebody look after the control connections, once. The caller
// holds the lock of a server that is not closed.
func (s *Server) watch() {
	if !s.watched {
		s.watched = true
		s.all.Go(s.watchPeers)
	}
}
