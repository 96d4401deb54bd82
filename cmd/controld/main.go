// Command controld is the daemon, the agent inside a sandbox and the client,
// in one binary. `controld --help` lists the commands.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/controld/controld/cmd/internal/agentcmd"
	"github.com/controld/controld/sandbox/local"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == keepWord {
		os.Exit(local.Keep())
	}
	// The kernel leaves signals to the first thread. If that hung in a file
	// system, a daemon would not hear SIGTERM: nothing but this runs on it.
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// keepWord is the argument with which this program does nothing but end the
// commands of a daemon that was killed.
const keepWord = "__keep"

// keeper is the command line for that: this very program, wherever it is by
// now.
func keeper() []string { return []string{"/proc/self/exe", os.Args[0], keepWord} }

// agentProgram is the command line of an agent: the program of that name beside
// this one where there is one, since it is smaller, else this very program.
func agentProgram() []string {
	const own = "/proc/self/exe"
	if self, err := os.Readlink(own); err == nil {
		if beside := filepath.Join(filepath.Dir(self), "controld-agent"); isProgram(beside) {
			return []string{beside}
		}
	}
	return []string{own, "agent"}
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// app is what every command has at hand.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	client         clientFlags
}

// run runs one command line and returns its exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	return a.report(ctx, cmd, err)
}

// agentCommand is the whole of the program controld-agent.
func agentCommand() *cobra.Command {
	cmd := agentcmd.New(agentcmd.Options{Name: "agent", Version: version(), Keeper: keeper(), Wrong: usagef})
	cmd.GroupID = groupDaemon
	return cmd
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "controld",
		Short: "The place where AI agents do their work",
		Long: `controld runs sandboxes for AI agents and talks to them.

  controld serve --dev          start a daemon for development
  controld exec -- uname -a     run a command in the sandbox
  controld cp big.bin :big.bin  copy a file into it

Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 permission or
authentication, 5 conflict, 6 unreachable or timeout, 7 limit. exec gives the
command's own; its own failures are 125, cannot run 126, not found 127,
timeout 124, signal 128+n.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; see controld --help", args[0])
			}
			return cmd.Help()
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err.Error()} })
	root.AddGroup(&cobra.Group{ID: groupDaemon, Title: "Daemon:"}, &cobra.Group{ID: groupClient, Title: "Client:"})
	root.AddCommand(a.serveCommand(), agentCommand(), a.tokenCommand(), a.configCommand(), a.doctorCommand(), a.versionCommand())
	root.AddCommand(a.execCommand(), a.cpCommand(), a.catCommand(), a.putCommand(), a.lsCommand(), a.statCommand(),
		a.mkdirCommand(), a.rmCommand(), a.existsCommand(), a.sandboxCommand(), a.pingCommand(), a.benchCommand())
	return root
}

// The groups in which help lists the commands.
const (
	groupDaemon = "daemon"
	groupClient = "client"
)

// args wraps a check of the number of arguments into a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%s: %v; see controld %s --help", cmd.Name(), err, cmd.Name())
		}
		return nil
	}
}
