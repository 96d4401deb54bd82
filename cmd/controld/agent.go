package main

import (
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/controld/controld/sandboxhost/daemon"
)

func (a *app) agentCommand() *cobra.Command {
	agent := daemon.Agent{Version: version(), Keeper: keeper()}
	var secret string
	var traceable bool
	cmd := &cobra.Command{
		Use:     "agent --listen URL --secret-sha256 HEX",
		Short:   "Run the server inside a sandbox, both planes on one address",
		GroupID: groupDaemon,
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := hex.DecodeString(secret)
			if agent.Listen == "" || err != nil || len(raw) != len(agent.SecretSHA256) {
				return usagef("agent: --listen URL and --secret-sha256 HEX (64 digits) are required")
			}
			if !traceable {
				if err := hide(); err != nil {
					return fmt.Errorf("agent: %w", err)
				}
			}
			copy(agent.SecretSHA256[:], raw)
			agent.Ready = func(url string) { fmt.Fprintf(a.stderr, "controld: agent listens on %s\n", url) }
			return agent.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&agent.Listen, "listen", "", "URL to listen on")
	f.StringVar(&secret, "secret-sha256", "", "SHA-256 of the secret that hello must show, in hex")
	f.StringVar(&agent.Cwd, "cwd", ".", "directory in which relative paths start")
	f.BoolVar(&agent.Insecure, "insecure", false, "allow to listen in the clear beyond this machine")

	f.BoolVar(&traceable, "traceable", false, "let processes of the same user trace and read this one")

	var url string
	relay := &cobra.Command{
		Use: "relay --listen URL", Short: "Join standard input and output to the address that an agent listens on", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if url == "" {
				return usagef("agent relay: --listen URL is required")
			}
			return daemon.Relay(cmd.Context(), url, a.stdin, a.stdout)
		},
	}
	relay.Flags().StringVar(&url, "listen", "", "the agent's URL")
	cmd.AddCommand(relay)
	return cmd
}
