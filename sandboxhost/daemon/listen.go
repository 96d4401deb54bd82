package daemon

import (
	"fmt"
	"net"
	"os"
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
	given := activated()
	if ls.ready.Control, err = ls.open("control", d.cfg.Control, given["control"], server.Control); err != nil {
		return nil, err
	}
	if ls.ready.Data, err = ls.open("data", d.cfg.Data, given["data"], server.Data); err != nil {
		return nil, err
	}
	if d.cfg.Admin != "" {
		var e dataport.Endpoint
		if ls.admin, e, err = listenOn(d.cfg.Admin); err != nil {
			return nil, fmt.Errorf("admin: %w", err)
		}
		ls.ready.Admin = e.String()
	}
	d.dataURLs = d.cfg.AdvertiseData
	if len(d.dataURLs) == 0 {
		d.dataURLs = advertised(ls.ready.Data)
	}
	return ls, nil
}

func activated() map[string][]net.Listener {
	if os.Getenv("LISTEN_FDS") == "" {
		return nil
	}
	given, err := activation.ListenersWithNames()
	if err != nil {
		return nil
	}
	return given
}

func (ls *listeners) open(key string, urls []string, given []net.Listener, planes server.Planes) ([]string, error) {
	var out []string
	for _, ln := range given {
		ls.planes = append(ls.planes, plane{ln, planes})
		out = append(out, urlOf(ln.Addr()))
	}
	if len(given) > 0 {
		return out, nil
	}
	for _, u := range urls {
		ln, e, err := listenOn(u)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		ls.planes = append(ls.planes, plane{ln, planes})
		out = append(out, e.String())
	}
	return out, nil
}

// listenOn listens on a URL and returns it with the port that was picked.
func listenOn(u string) (net.Listener, dataport.Endpoint, error) {
	e, err := dataport.ParseEndpoint(u)
	if err != nil {
		return nil, e, err
	}
	ln, err := dataport.Listen(e, nil, nil)
	if err != nil {
		return nil, e, err
	}
	if addr, ok := ln.Addr().(*net.TCPAddr); ok {
		e.Port = uint32(addr.Port)
	}
	return ln, e, nil
}

func urlOf(addr net.Addr) string {
	if addr.Network() == "unix" {
		return dataport.Endpoint{Scheme: dataport.SchemeUnix, Path: addr.String()}.String()
	}
	return "tcp://" + addr.String()
}

// advertised lists data endpoints for clients: a wildcard address without a
// host, so that the client puts in the one that it dialled.
func advertised(urls []string) []string {
	out := make([]string, 0, len(urls))
	for _, u := range urls {
		e, err := dataport.ParseEndpoint(u)
		if err != nil {
			continue
		}
		if ip := net.ParseIP(strings.Trim(e.Host, "[]")); ip != nil && ip.IsUnspecified() {
			e.Host = ""
		}
		out = append(out, e.String())
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
