package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost/daemon"
)

func (a *app) serveCommand() *cobra.Command {
	var dev bool
	var file string
	cmd := &cobra.Command{
		Use:   "serve [--dev] [--config FILE] [flags]",
		Short: "Run the daemon",
		Long: `Run the daemon. Flags win over environment variables (CONTROLD_STATE_DIR is
--state-dir), those over the file, that over the defaults.

SIGTERM drains, a second one stops at once; SIGHUP reloads certificates,
tokens, limits and log level.`,
		GroupID: groupDaemon,
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd, dev, file)
		},
	}
	settingFlags(cmd.Flags())
	cmd.Flags().BoolVar(&dev, "dev", false, "everything with defaults, on loopback, with a token of its own")
	cmd.Flags().StringVar(&file, "config", os.Getenv("CONTROLD_CONFIG"), "YAML file of settings")
	return cmd
}

func (a *app) serve(cmd *cobra.Command, dev bool, file string) error {
	defaults, secret, err := a.defaults(cmd, dev)
	if err != nil {
		return err
	}
	load := func() (daemon.Config, error) {
		s, err := loadSettings(defaults, file, cmd.Flags())
		return s.Config, err
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	if !cfg.Traceable {
		if err := local.Hide(); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
	}
	sig := newSignals()
	defer sig.stop()
	opts := daemon.Options{Version: version(), Log: a.stderr, Drain: sig.drain, Reload: sig.reload, Load: load, Keeper: keeper(), Agent: agentProgram()}
	if secret != "" {
		opts.Ready = func(r daemon.Ready) { a.leaveClient(r, secret) }
	}
	d, err := daemon.New(cfg, opts)
	if err != nil {
		return usagef("serve: %v", err)
	}
	return d.Run(sig.ctx)
}

// defaults returns what the settings start from; with dev also the secret.
func (a *app) defaults(cmd *cobra.Command, dev bool) (daemon.Config, string, error) {
	cfg := daemon.Default()
	if !dev {
		return cfg, "", nil
	}
	dir, err := daemon.UserStateDir()
	if err != nil {
		return cfg, "", err
	}
	cfg.StateDir, cfg.Admin = dir, "tcp://127.0.0.1:7073"
	if !cmd.Flags().Changed("driver") && os.Getenv(envPrefix+"DRIVER") == "" {
		var refused error
		if cfg.Driver, refused = daemon.DevDriver(cmd.Context(), agentProgram()); refused != nil {
			fmt.Fprintf(a.stderr, "controld: no isolation: %s\n", strings.ReplaceAll(refused.Error(), "\n", "; "))
		}
	}
	if cmd.Flags().Changed("tokens") || os.Getenv(envPrefix+"TOKENS") != "" {
		return cfg, "", nil
	}
	secret, path, err := daemon.DevSecret(dir)
	if err != nil {
		return cfg, "", fmt.Errorf("dev token: %w", err)
	}
	cfg.Tokens = path
	return cfg, secret, nil
}

func (a *app) leaveClient(r daemon.Ready, secret string) {
	dir, err := daemon.UserStateDir()
	if err == nil {
		err = daemon.LeaveDevClient(dir, daemon.DevClient{Control: r.Control[0], Token: secret})
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "controld: client commands will not find this daemon: %v\n", err)
		return
	}
	fmt.Fprintf(a.stderr, "controld: try: %s exec -- uname -a\n", filepath.Base(os.Args[0]))
}

// signals turns signals into what a daemon is told: the first TERM or INT
// drains, the second ends ctx; HUP reloads.
type signals struct {
	ctx           context.Context
	drain, reload chan struct{}
	stop          func()
}

func newSignals() *signals {
	ctx, cancel := context.WithCancel(context.Background())
	s := &signals{ctx: ctx, drain: make(chan struct{}), reload: make(chan struct{}, 1)}
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(ch, cancel) })
	s.stop = func() {
		signal.Stop(ch)
		close(ch)
		watching.Wait()
		cancel()
	}
	return s
}

func (s *signals) watch(ch <-chan os.Signal, stop func()) {
	draining := false
	for sig := range ch {
		switch {
		case sig == syscall.SIGHUP:
			select {
			case s.reload <- struct{}{}:
			default:
			}
		case draining:
			stop()
		default:
			draining = true
			close(s.drain)
		}
	}
}
