package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

func (a *app) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "List, start, end and remove sandboxes", GroupID: groupClient, Args: args(cobra.NoArgs),
		Long: `List, start, end and remove the sandboxes that the token covers.

The daemon is spoken to in the sandbox of --sandbox, which runs for that; the
commands are about the one that is named, or else about that one.`,
		RunE: func(*cobra.Command, []string) error {
			return usagef("sandbox: say sandbox create, ls, info, rm, extend, pause or resume")
		}}
	for _, sub := range []*cobra.Command{a.sandboxCreate(), a.sandboxList(), a.sandboxInfo(), a.sandboxRemove(), a.sandboxExtend(), a.sandboxPause(), a.sandboxResume()} {
		sub.GroupID = "" // the group is of commands of the first level
		cmd.AddCommand(sub)
	}
	return cmd
}

// named is the sandbox of a command line, empty for the session's own.
func named(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// completeSandboxes offers the names that there are.
func (a *app) completeSandboxes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	sb, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer sb.Close()
	list, _ := sb.ListSandboxes(cmd.Context())
	var names []string
	for _, s := range list {
		names = append(names, s.Sandbox)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// aboutOne is a command about one sandbox, whose status it prints.
func (a *app) aboutOne(use, short string, call func(cmd *cobra.Command, sb *adapter.Sandbox, name string) (sandbox.Status, error)) *cobra.Command {
	return a.clientCommand(&cobra.Command{
		Use: use, Short: short, Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: a.completeSandboxes,
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		s, err := call(cmd, sb, named(args))
		if err != nil {
			return err
		}
		if a.client.json {
			return a.print(&rpc.SandboxResult{Status: s})
		}
		return a.describe(s)
	})
}

func (a *app) sandboxCreate() *cobra.Command {
	return a.aboutOne("create [NAME]", "Start a sandbox that does not run, and wait for it", func(cmd *cobra.Command, sb *adapter.Sandbox, name string) (sandbox.Status, error) {
		return sb.CreateSandbox(cmd.Context(), name)
	})
}

func (a *app) sandboxInfo() *cobra.Command {
	return a.aboutOne("info [NAME]", "Describe a sandbox", func(cmd *cobra.Command, sb *adapter.Sandbox, name string) (sandbox.Status, error) {
		return sb.SandboxStatus(cmd.Context(), name)
	})
}

func (a *app) sandboxPause() *cobra.Command {
	return a.aboutOne("pause [NAME]", "Stop all processes of a sandbox until it is resumed", func(cmd *cobra.Command, sb *adapter.Sandbox, name string) (sandbox.Status, error) {
		return sb.PauseSandbox(cmd.Context(), name)
	})
}

func (a *app) sandboxResume() *cobra.Command {
	return a.aboutOne("resume [NAME]", "Have the processes of a paused sandbox go on", func(cmd *cobra.Command, sb *adapter.Sandbox, name string) (sandbox.Status, error) {
		return sb.ResumeSandbox(cmd.Context(), name)
	})
}

func (a *app) sandboxExtend() *cobra.Command {
	var least time.Duration
	cmd := a.aboutOne("extend [NAME] --for DURATION", "Let a sandbox live for at least so long from now on", func(cmd *cobra.Command, sb *adapter.Sandbox, name string) (sandbox.Status, error) {
		return sb.ExtendSandbox(cmd.Context(), name, least)
	})
	cmd.Flags().DurationVar(&least, "for", 0, "how long from now on, at most the daemon's --max-life")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if least <= 0 {
			return usagef("extend: --for must be above 0")
		}
		return nil
	}
	return cmd
}

func (a *app) sandboxRemove() *cobra.Command {
	var files bool
	cmd := a.clientCommand(&cobra.Command{
		Use: "rm NAME", Short: "End a sandbox and, with --files, remove its directory", Args: args(cobra.ExactArgs(1)), ValidArgsFunction: a.completeSandboxes,
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		if err := sb.RemoveSandbox(cmd.Context(), args[0], files); err != nil || !a.client.json {
			return err
		}
		return a.print(&rpc.Empty{})
	})
	cmd.Flags().BoolVar(&files, "files", false, "with all its files")
	return cmd
}

func (a *app) sandboxList() *cobra.Command {
	return a.clientCommand(&cobra.Command{
		Use: "ls", Short: "List sandboxes", Args: args(cobra.NoArgs),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, _ []string) error {
		list, err := sb.ListSandboxes(cmd.Context())
		if err != nil {
			return err
		}
		if a.client.json {
			return a.print(&rpc.SandboxListResult{Sandboxes: list})
		}
		return a.tabulate(list)
	})
}

// tabulate writes a line each. There is a column of tiers where there are some.
func (a *app) tabulate(list []sandbox.Status) error {
	tiers := slices.ContainsFunc(list, func(s sandbox.Status) bool { return s.Tier != "" })
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	line := func(sandbox, state, driver, tier string, more ...string) {
		cells := []string{sandbox, state, driver}
		if tiers {
			cells = append(cells, cmp.Or(tier, unknown))
		}
		fmt.Fprintln(w, strings.Join(append(cells, more...), "\t"))
	}
	line("SANDBOX", "STATE", "DRIVER", "TIER", "STARTED", "ENDS", "CPU", "MEMORY", "PROCESSES")
	for _, s := range list {
		line(s.Sandbox, string(s.State), s.Driver, s.Tier, momentText(s.Started), momentText(s.Ends), cpuText(s), memoryText(s), processesText(s))
	}
	return w.Flush()
}

// describe writes what is known of a sandbox, a line each.
func (a *app) describe(s sandbox.Status) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"sandbox", s.Sandbox}, {"state", string(s.State)}, {"driver", s.Driver}, {"tier", s.Tier}, {"instance", s.Instance}, {"epoch", s.Epoch},
		{"started", momentText(s.Started)}, {"ends", momentText(s.Ends)}, {"idle-stop", idleText(s)},
		{"cpu", cpuText(s)}, {"memory", memoryText(s)}, {"processes", processesText(s)},
	} {
		if line[1] != "" && line[1] != unknown {
			fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
	}
	return w.Flush()
}

// unknown stands in a table for what is not known.
const unknown = "-"

func momentText(t sandbox.Optional[time.Time]) string {
	if !t.Known {
		return unknown
	}
	return t.Value.UTC().Format(time.RFC3339)
}

func idleText(s sandbox.Status) string {
	if s.IdleStop == 0 {
		return unknown
	}
	return s.IdleStop.String()
}

func cpuText(s sandbox.Status) string {
	if !s.CPU.Known {
		return unknown
	}
	return s.CPU.Value.Round(time.Millisecond).String()
}

func memoryText(s sandbox.Status) string {
	if !s.Memory.Known {
		return unknown
	}
	return humanize.IBytes(uint64(s.Memory.Value))
}

func processesText(s sandbox.Status) string {
	if !s.Processes.Known {
		return unknown
	}
	return strconv.FormatInt(s.Processes.Value, 10)
}
