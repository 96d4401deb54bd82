package gate

import (
	"net"
	"net/netip"
	"strconv"

	"github.com/controld/controld/dataport"
)

// Source is whom connections are counted to: an IPv4 address, a /64 of IPv6,
// the user at the far end of a Unix socket. All else of one kind (vsock, pipes)
// is one source.
type Source struct {
	net netip.Prefix // of IP
	uid uint32       // of Unix, plus one
}

// SourceOf returns the source of a connection.
func SourceOf(conn net.Conn) Source {
	conn = dataport.Bare(conn)
	if addr, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return sourceOfIP(addr.AddrPort().Addr())
	}
	if uid, known := dataport.PeerUID(conn); known {
		return Source{uid: uid + 1}
	}
	return Source{}
}

func sourceOfIP(ip netip.Addr) Source {
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return Source{net: netip.PrefixFrom(ip, 32)}
	}
	network, _ := ip.Prefix(64)
	return Source{net: network}
}

// around returns the neighbourhood of a source, IPv4's /16 and IPv6's /32:
// whom it is counted to when there is no room for it alone.
func (s Source) around() Source {
	bits := 32
	switch {
	case !s.net.IsValid():
		return s
	case s.net.Addr().Is4():
		bits = 16
	}
	network, _ := s.net.Addr().Prefix(bits)
	return Source{net: network}
}

// String names the source in logs: an address, a network, a uid.
func (s Source) String() string {
	switch {
	case s.net.IsValid() && s.net.IsSingleIP():
		return s.net.Addr().String()
	case s.net.IsValid():
		return s.net.String()
	case s.uid > 0:
		return "uid " + strconv.FormatUint(uint64(s.uid-1), 10)
	}
	return "local"
}
