package server

import (
	"net"
	"time"
)

// tune has the system find a dead peer within 45 s.
func tune(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 10 * time.Second, Count: 3,
	})
	setUserTimeout(tcp, 45*time.Second)
}
