package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

func (a *app) execCommand() *cobra.Command {
	var opts sandbox.ExecOptions
	var env []string
	var timeout time.Duration
	var interactive, tty bool
	cmd := a.clientCommand(&cobra.Command{
		Use:   "exec [flags] -- CMD ARG...",
		Short: "Run a command in the sandbox",
		Long: `Run a command in the sandbox and print its output when it has ended. One
argument alone is a line for the sandbox's /bin/sh; several are a command and
its arguments, passed on as they are.

The exit code is the command's own; 124 at a timeout, 125 for a failure of
controld itself, 126 when the command cannot be run, 127 when it is not found,
128+n after signal n.`,
		Args: args(cobra.MinimumNArgs(1)),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error {
		if interactive || tty {
			return usagef("exec: -i and -t are not supported yet")
		}
		var err error
		if opts.Env, err = parseEnv(env); err != nil {
			return err
		}
		if cmd.Flags().Changed("timeout") && timeout <= 0 {
			return usagef("exec: --timeout must be above 0")
		}
		opts.Timeout = timeout
		opts.Cwd = remotePath(opts.Cwd)
		res, err := sb.Exec(cmd.Context(), commandLine(args), opts)
		if err != nil {
			return err
		}
		return a.printExec(res)
	})
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&opts.Cwd, "workdir", "w", "", "directory to start in")
	f.StringArrayVarP(&env, "env", "e", nil, "environment variable K=V, repeatable")
	f.DurationVar(&timeout, "timeout", 0, "end the command after this time")
	f.BoolVarP(&interactive, "interactive", "i", false, "pass standard input on (not yet)")
	f.BoolVarP(&tty, "tty", "t", false, "give the command a terminal (not yet)")
	return cmd
}

func parseEnv(pairs []string) (map[string]string, error) {
	env := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, usagef("exec: -e %q is not K=V", p)
		}
		env[k] = v
	}
	return env, nil
}

// commandLine is a line for sh: one argument as it stands, several quoted so
// that sh gives them back as they are.
func commandLine(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

func (a *app) printExec(res sandbox.ShellResult) error {
	if a.client.json {
		if err := a.print(&rpc.ExecResult{Shell: res}); err != nil {
			return err
		}
		return exitError(res.ExitCode)
	}
	if _, err := a.stdout.Write(res.Stdout); err != nil {
		return err
	}
	a.stderr.Write(res.Stderr)
	a.warnOmitted("stdout", res.StdoutOmitted)
	a.warnOmitted("stderr", res.StderrOmitted)
	return exitError(res.ExitCode)
}

func (a *app) warnOmitted(stream string, n int64) {
	if n > 0 {
		fmt.Fprintf(a.stderr, "controld: %d bytes in the middle of %s were left out\n", n, stream)
	}
}
