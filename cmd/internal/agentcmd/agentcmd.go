// Package agentcmd is the command line of the agent, for the two programs that
// have it: controld, and controld-agent, which has nothing else.
//
// What does not belong here: exit codes, and what an agent does.
package agentcmd

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost/agent"
)

// Options are what the programs differ in.
type Options struct {
	// Name is the command's, as it is called.
	Name    string
	Version string
	// Keeper is as in [agent.Agent].
	Keeper []string
	// Wrong makes an error of a mistake in the command line.
	Wrong func(format string, args ...any) error
}

// New returns the command with its one subcommand, relay.
func New(o Options) *cobra.Command {
	a := agent.Agent{Version: o.Version, Keeper: o.Keeper}
	var secret string
	var confine []string
	cmd := &cobra.Command{
		Use:   o.Name + " --listen URL --secret-sha256 HEX",
		Short: "Run the server inside a sandbox, both planes on one address",
		Long: `Run the server inside a sandbox, both planes on one address. A Unix socket
that was handed over (LISTEN_FDS=1, descriptor 3) is taken instead of opening
one; --listen then says what it is called.

As process 1 of a namespace it is ended by SIGKILL from outside and by no other
signal.`,
		Args: o.none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := hex.DecodeString(secret)
			if a.Listen == "" || err != nil || len(raw) != len(a.SecretSHA256) {
				return o.Wrong("agent: --listen URL and --secret-sha256 HEX (64 digits) are required")
			}
			copy(a.SecretSHA256[:], raw)
			if len(confine) > 0 {
				if err := agent.Confine(confine, unconfined(os.Args)); err != nil {
					return err
				}
			}
			a.Ready = func(url string) { fmt.Fprintf(cmd.ErrOrStderr(), "controld: agent listens on %s\n", url) }
			return a.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&a.Listen, "listen", "", "URL to listen on")
	f.StringVar(&secret, "secret-sha256", "", "SHA-256 of the secret that hello must show, in hex")
	f.StringVar(&a.Cwd, "cwd", ".", "directory in which relative paths start")
	f.StringVar(&a.State, "state", "", "directory for what has to be removed after a kill, out of reach of commands")
	f.StringSliceVar(&confine, "confine", nil, "have this process and commands change no files but these, and what is beneath these directories, by Landlock where there is one")
	f.BoolVar(&a.Insecure, "insecure", false, "allow to listen in the clear beyond this machine")
	f.Var(userFlag{&a.User}, "user", "`UID:GID[,GID...]` of commands and of file calls, where this is process 1 and root of its namespace")
	f.Uint64Var(&a.Processes, "user-processes", 0, "the most processes and threads of --user at once; 0 is any number")
	f.Var(userFlag{&a.Own}, "own-user", "`UID:GID` of this process beside --user; root's where it is not told")
	f.BoolVar(&a.Traceable, "traceable", false, "let processes of the same user trace, read and signal this one")
	cmd.AddCommand(o.relay())
	return cmd
}

func (o Options) relay() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use: "relay --listen URL", Short: "Join standard input and output to the address that an agent listens on", Args: o.none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if url == "" {
				return o.Wrong("agent relay: --listen URL is required")
			}
			return agent.Relay(cmd.Context(), url, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&url, "listen", "", "the agent's URL")
	return cmd
}

// unconfined are the arguments of a process that was confined.
func unconfined(args []string) []string {
	var rest []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--confine":
			i++ // and its value
		case !strings.HasPrefix(args[i], "--confine="):
			rest = append(rest, args[i])
		}
	}
	return rest
}

// userFlag is a flag that names a user.
type userFlag struct{ user **local.User }

// Set implements pflag.Value.
func (f userFlag) Set(s string) error {
	u, err := local.ParseUser(s)
	if err == nil {
		*f.user = &u
	}
	return err
}

// Type and String implement pflag.Value.
func (f userFlag) Type() string { return "user" }
func (f userFlag) String() string {
	if *f.user == nil {
		return ""
	}
	return (*f.user).String()
}

// none takes no arguments.
func (o Options) none(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return o.Wrong("%s: %v; see %[1]s --help", cmd.CommandPath(), err)
	}
	return nil
}
