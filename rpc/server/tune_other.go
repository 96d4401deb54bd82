//go:build !linux

package server

import (
	"net"
	"time"
)

// setUserTimeout does nothing: keepalive alone finds dead peers here.
func setUserTimeout(*net.TCPConn, time.Duration) {}
