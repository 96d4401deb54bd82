//go:build !linux && !darwin

package dataport

import "net"

// PeerUID is not to be had on this system: nobody is accepted on Unix sockets
// but by a [ListenOptions] of one's own.
func PeerUID(net.Conn) (uint32, bool) { return 0, false }
