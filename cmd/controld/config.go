package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/controld/controld/sandboxhost/daemon"
)

func (a *app) configCommand() *cobra.Command {
	config := &cobra.Command{Use: "config", Short: "Check and show the daemon's configuration", GroupID: groupDaemon,
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return usagef("config: say config check FILE or config show") }}
	check := &cobra.Command{
		Use: "check FILE", Short: "Check a configuration file", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := loadSettings(daemon.Default(), args[0], cmd.Flags())
			if err != nil {
				return err
			}
			if s.Tokens == "" {
				s.Tokens = "given by flag" // serve may still be told
			}
			if err := s.Check(); err != nil {
				return usagef("%s: %v", args[0], err)
			}
			_, err = fmt.Fprintf(a.stdout, "%s: ok\n", args[0])
			return err
		},
	}
	var file, output string
	showCommand := &cobra.Command{
		Use: "show", Short: "Show every effective value and where it came from", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := loadSettings(daemon.Default(), file, cmd.Flags())
			if err != nil {
				return err
			}
			return a.showSettings(s, output)
		},
	}
	settingFlags(showCommand.Flags())
	showCommand.Flags().StringVar(&file, "config", "", "configuration file")
	showCommand.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	config.AddCommand(check, showCommand)
	return config
}

func (a *app) showSettings(s settings, output string) error {
	if output == "json" {
		all := make(map[string]any)
		for _, key := range keys() {
			all[key] = map[string]any{"value": s.value(key), "from": s.origin[key]}
		}
		return json.NewEncoder(a.stdout).Encode(all)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, key := range keys() {
		fmt.Fprintf(w, "%s:\t%s\t# %s\n", key, show(s.value(key)), s.origin[key])
	}
	return w.Flush()
}
