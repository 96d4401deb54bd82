package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/controld/controld/sandboxhost/daemon"
	"github.com/controld/controld/sandboxhost/driver/host"
)

// doctorPatience bounds each check that starts something.
const doctorPatience = time.Minute

// finding is what one check found.
type finding struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Says is what was found, Hint what to do about it.
	Says string `json:"says"`
	Hint string `json:"hint,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what this machine can do: drivers, by starting a small sandbox with each, and what they rest on",
		Long: `Tell what this machine can do. Each driver is tried by starting a sandbox,
running a command in it and reading a file. The exit code is 1 where no driver
but host, which isolates nothing, can run.`,
		GroupID: groupDaemon,
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, isolates := tryDrivers(cmd.Context())
			if err := a.tell(append(all, machine()...), output); err != nil {
				return err
			}
			if !isolates {
				return errors.New("no driver that isolates can run here")
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// tryDrivers tries each, and tells whether one that isolates can run.
func tryDrivers(ctx context.Context) (all []finding, isolates bool) {
	for _, name := range daemon.DriverNames() {
		f := tryDriver(ctx, name)
		all = append(all, f)
		isolates = isolates || f.OK && name != host.Name
	}
	return all, isolates
}

func tryDriver(ctx context.Context, name string) finding {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	f := finding{Check: "driver " + name}
	began := time.Now()
	if err := daemon.TryDriver(ctx, name, agentProgram()); err != nil {
		f.Says, f.Hint = oneLine(err.Error()), driverHints[name]
		return f
	}
	f.OK, f.Says = true, fmt.Sprintf("a sandbox ran a command, %d ms in all", time.Since(began).Milliseconds())
	if name == host.Name {
		f.Says += "; it isolates nothing"
	}
	return f
}

// driverHints say what a driver needs.
var driverHints = map[string]string{
	"bwrap":  "install bubblewrap, and allow user namespaces to whom runs controld",
	"oci":    "run as root and install runc, or name another runtime by --runtime",
	"docker": "run as root beside a Docker engine or Podman's socket, or say where it is by DOCKER_HOST",
}

func (a *app) tell(all []finding, output string) error {
	if output == "json" {
		return json.NewEncoder(a.stdout).Encode(all)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, f := range all {
		mark := "no"
		if f.OK {
			mark = "ok"
		}
		hint := ""
		if !f.OK && f.Hint != "" {
			hint = " (" + f.Hint + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", mark, f.Check, f.Says, hint)
	}
	return w.Flush()
}
