package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost/daemon"
)

// demoTenant is whose sandbox the demo works in.
const demoTenant = daemon.DevTenant

// embeddedTier is a daemon in this process with the driver of its default.
const embeddedTier = "embedded"

// newResolver decides, here and nowhere else, what stands behind the API.
func newResolver(backend string, stderr io.Writer) *sandbox.Resolver {
	return sandbox.NewResolver(sandbox.ResolverConfig{
		Tier: func(string) sandbox.Tier { return sandbox.Tier(backend) },
		Dial: func(ctx context.Context, _ string, tier sandbox.Tier) (sandbox.Connection, error) {
			switch {
			case tier == "local":
				return dialLocal()
			case tier == embeddedTier:
				return dialEmbedded(ctx, daemon.Default().Driver, stderr)
			case slices.Contains(daemon.DriverNames(), string(tier)):
				return dialEmbedded(ctx, string(tier), stderr)
			default:
				return dialDaemon(ctx, string(tier), os.Getenv("CONTROLD_TOKEN"))
			}
		},
	})
}

func dialLocal() (sandbox.Connection, error) {
	dir, err := os.MkdirTemp("", "runtime-demo-")
	if err != nil {
		return sandbox.Connection{}, err
	}
	sb, err := local.New(local.Options{DefaultCwd: filepath.Join(dir, "sandbox"), StateDir: filepath.Join(dir, "state")})
	if err != nil {
		os.RemoveAll(dir)
		return sandbox.Connection{}, err
	}
	return sandbox.Connection{API: sb, Close: func() error {
		return errors.Join(sb.Close(), os.RemoveAll(dir))
	}}, nil
}

func dialDaemon(ctx context.Context, url, token string) (sandbox.Connection, error) {
	sb, err := adapter.New(adapter.Options{Control: url, Token: token, Client: "runtime-demo/1"})
	if err != nil {
		return sandbox.Connection{}, err
	}
	// The adapter dials at its first call; whether it can, is known better now.
	if _, err := sb.Info(ctx); err != nil {
		return sandbox.Connection{}, errors.Join(err, sb.Close())
	}
	return sandbox.Connection{API: sb, Close: sb.Close}, nil
}

// dialEmbedded starts a daemon with a driver on loopback in this process and
// connects to it over TCP, as to any other.
func dialEmbedded(ctx context.Context, driver string, stderr io.Writer) (sandbox.Connection, error) {
	dir, err := os.MkdirTemp("", "runtime-demo-")
	if err != nil {
		return sandbox.Connection{}, err
	}
	e := &embedded{dir: dir, drain: make(chan struct{}), ended: make(chan error, 1)}
	ready, token, err := e.start(ctx, driver, stderr)
	if err != nil {
		os.RemoveAll(dir)
		return sandbox.Connection{}, err
	}
	conn, err := dialDaemon(ctx, ready.Control[0], token)
	if err != nil {
		return sandbox.Connection{}, errors.Join(err, e.stop())
	}
	return sandbox.Connection{API: conn.API, Close: func() error { return errors.Join(conn.Close(), e.stop()) }}, nil
}

// embedded is a daemon in this process.
type embedded struct {
	dir   string
	drain chan struct{}
	ended chan error
}

func (e *embedded) start(ctx context.Context, driver string, stderr io.Writer) (daemon.Ready, string, error) {
	token, tokens, err := daemon.DevSecret(e.dir)
	if err != nil {
		return daemon.Ready{}, "", err
	}
	cfg := daemon.Default()
	cfg.Control, cfg.Data = []string{"tcp://127.0.0.1:0"}, []string{"tcp://127.0.0.1:0"}
	cfg.StateDir, cfg.Tokens, cfg.LogLevel, cfg.Driver = e.dir, tokens, "error", driver
	ready := make(chan daemon.Ready, 1)
	d, err := daemon.New(cfg, daemon.Options{Log: stderr, Drain: e.drain, Agent: []string{"/proc/self/exe", agentWord}, Ready: func(r daemon.Ready) { ready <- r }})
	if err != nil {
		return daemon.Ready{}, "", err
	}
	go func() { e.ended <- d.Run(context.WithoutCancel(ctx)) }()
	select {
	case r := <-ready:
		return r, token, nil
	case err := <-e.ended:
		return daemon.Ready{}, "", fmt.Errorf("embedded daemon: %w", err)
	}
}

func (e *embedded) stop() error {
	close(e.drain)
	return errors.Join(<-e.ended, os.RemoveAll(e.dir))
}
