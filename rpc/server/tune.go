package server

import (
	"net"

	"github.com/controld/controld/dataport"
)

// tune has the system find a dead peer within 45 s.
func tune(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	tcp.SetKeepAliveConfig(dataport.KeepAlive())
	setUserTimeout(tcp, dataport.DeadPeerTimeout)
}
