package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/controld/controld/rpc"
)

// release is set by -ldflags "-X main.release=..." in release builds, commit
// where the build does not record it itself.
var release, commit = "0.1.0-dev", ""

// version is the release with the commit that it was built from.
func version() string {
	if c := builtFrom(); c != "" {
		return release + "+" + c[:min(12, len(c))]
	}
	return release
}

func builtFrom() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

func (a *app) versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the build and the protocol version", GroupID: groupDaemon, Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			revision := builtFrom()
			if revision == "" {
				revision = "unknown"
			}
			if output == "json" {
				return json.NewEncoder(a.stdout).Encode(map[string]any{
					"version": version(), "commit": revision, "protocol": rpc.ProtocolVersion, "go": runtime.Version(),
					"os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(a.stdout, "controld %s\ncommit   %s\nprotocol %d\ngo       %s %s/%s\n",
				version(), revision, rpc.ProtocolVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}
