package daemon

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc/server"
)

// plane is a listener and what it carries.
type plane struct {
	net.Listener
	planes server.Planes
}

// listeners are all that a daemon listens on.
type listeners struct {
	planes []plane
	admin  net.Listener
	ready  Ready
}

// listen opens every listener, or none. Sockets that a service manager hands
// over by the names control and data stand in for the configured ones.
func (d *Daemon) listen() (_ *listeners, err error) {
	ls := &listeners{}
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	given, err := d.activated()
	if err != nil {
		return nil, err
	}
	peers := d.peers()
	if ls.ready.Control, err = ls.open("control", d.cfg.Control, given["control"], server.Control, peers); err != nil {
		return nil, err
	}
	fromNetworks := peers
	if fromNetworks.AllowFrom, err = d.cfg.plainDataFrom(); err != nil {
		return nil, err
	}
	if ls.ready.Data, err = ls.open("data", d.cfg.Data, given["data"], server.Data, fromNetworks); err != nil {
		return nil, err
	}
	if d.cfg.Admin != "" {
		var e dataport.Endpoint
		if ls.admin, e, err = dataport.ListenURL(d.cfg.Admin, peers); err != nil {
			return nil, fmt.Errorf("admin: %w", err)
		}
		ls.ready.Admin = e.String()
	}
	if len(d.cfg.InsecureDataFrom) > 0 {
		d.log.Warn().Strs("from", d.cfg.InsecureDataFrom).Msg("plain data endpoints carry tokens and contents in the clear")
	}
	d.dataURLs = d.cfg.AdvertiseData
	if len(d.dataURLs) == 0 {
		d.dataURLs = advertised(ls.ready.Data)
	}
	return ls, nil
}

// peers are whom the daemon's listeners accept.
func (d *Daemon) peers() dataport.ListenOptions {
	o := dataport.ListenOptions{Refused: func(net.Addr) { d.refused.Add(1) }}
	if d.cfg.TLSCert != "" {
		o.TLS = d.identity.config
	}
	own := append([]int{0, os.Geteuid()}, d.cfg.UnixAllowUID...)
	o.AllowUID = func(uid uint32) bool { return slices.Contains(own, int(uid)) }
	return o
}

// activated returns what a service manager handed over, if it may be used.
func (d *Daemon) activated() (map[string][]net.Listener, error) {
	if os.Getenv("LISTEN_FDS") == "" {
		return nil, nil
	}
	given, err := activation.ListenersWithNames()
	if err != nil {
		return nil, nil
	}
	for key, urls := range map[string][]string{"control": d.cfg.Control, "data": d.cfg.Data} {
		for _, ln := range given[key] {
			e := endpointOf(ln.Addr(), urls)
			if err := d.cfg.checkReach(key, e.String(), e); err != nil {
				return nil, err
			}
		}
	}
	return given, nil
}

func (ls *listeners) open(key string, urls []string, given []net.Listener, planes server.Planes, peers dataport.ListenOptions) ([]string, error) {
	var out []string
	for _, ln := range given {
		e := endpointOf(ln.Addr(), urls)
		ln, err := dataport.Take(ln, e, peers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		ls.planes = append(ls.planes, plane{ln, planes})
		out = append(out, e.String())
	}
	if len(given) > 0 {
		return out, nil
	}
	for _, u := range urls {
		ln, e, err := dataport.ListenURL(u, peers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		ls.planes = append(ls.planes, plane{ln, planes})
		out = append(out, e.String())
	}
	return out, nil
}

// endpointOf says what a socket is that was handed over: TLS where the first
// configured URL says so.
func endpointOf(addr net.Addr, urls []string) dataport.Endpoint {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return dataport.Endpoint{Scheme: dataport.SchemeUnix, Path: addr.String()}
	}
	e := dataport.Endpoint{Scheme: dataport.SchemeTCP, Host: tcp.IP.String(), Port: uint32(tcp.Port)}
	if len(urls) > 0 && strings.HasPrefix(urls[0], dataport.SchemeTLS+":") {
		e.Scheme = dataport.SchemeTLS
	}
	return e
}

// advertised lists data endpoints for clients.
func advertised(urls []string) []string {
	out := make([]string, 0, len(urls))
	for _, u := range urls {
		e, err := dataport.ParseEndpoint(u)
		if err != nil {
			continue
		}
		out = append(out, e.Told())
	}
	return out
}

func (ls *listeners) close() {
	for _, l := range ls.planes {
		l.Close()
	}
	if ls.admin != nil {
		ls.admin.Close()
	}
}
