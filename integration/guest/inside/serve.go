//go:build linux

package main

import (
	"context"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/daemon"
)

// served is a daemon that runs here.
type served struct {
	control, secret string
	stop            func()
}

// serve runs a daemon on loopback and returns a client of it.
func serve(ctx context.Context, adjust func(*daemon.Config)) (*adapter.Sandbox, func(), error) {
	d, err := serveOn(ctx, "127.0.0.1", adjust)
	if err != nil {
		return nil, nil, err
	}
	sb, err := adapter.New(adapter.Options{Control: d.control, Token: d.secret})
	if err != nil {
		d.stop()
		return nil, nil, err
	}
	return sb, func() { sb.Close(); d.stop() }, nil
}

// serveOn runs a daemon on an address, with the keeper of a command line where
// there is one.
func serveOn(ctx context.Context, host string, adjust func(*daemon.Config), keeper ...string) (*served, error) {
	secret, line, err := sandboxhost.NewSecret(sandboxhost.Grant{Tenant: "guest", Sandbox: sandboxhost.AnySandbox})
	if err != nil {
		return nil, err
	}
	cfg := daemon.Default()
	cfg.Control, cfg.Data = []string{"tcp://" + host + ":0"}, []string{"tcp://" + host + ":0"}
	cfg.StateDir, cfg.Tokens, cfg.LogLevel = "/tmp/state", "/tmp/tokens", "error"
	if adjust != nil {
		adjust(&cfg)
	}
	if err := sandboxhost.AppendToken(cfg.Tokens, line); err != nil {
		return nil, err
	}
	ready := make(chan daemon.Ready, 1)
	d, err := daemon.New(cfg, daemon.Options{Keeper: keeper, Ready: func(r daemon.Ready) { ready <- r }})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	select {
	case r := <-ready:
		return &served{r.Control[0], secret, func() { cancel(); <-ended }}, nil
	case err := <-ended:
		cancel()
		return nil, err
	}
}
