package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandboxhost/daemon"
)

// clientFlags say where the sandbox is.
type clientFlags struct {
	addr, dataAddr, tokenFile, sandbox string
	tls                                tlsFlags
	output                             string
	json                               bool
}

// clientCommand gives a command the flags of every client command and has run
// called with a connection, which it closes.
func (a *app) clientCommand(cmd *cobra.Command, run func(cmd *cobra.Command, sb *adapter.Sandbox, args []string) error) *cobra.Command {
	cmd.GroupID = groupClient
	f := cmd.Flags()
	f.StringVar(&a.client.addr, "addr", "", "control URL (CONTROLD_ADDR)")
	f.StringVar(&a.client.dataAddr, "data-addr", "", "data URL, instead of those that the server names (CONTROLD_DATA_ADDR)")
	f.StringVar(&a.client.tokenFile, "token-file", "", "file that holds the token (CONTROLD_TOKEN_FILE, or the token itself in CONTROLD_TOKEN)")
	a.client.tls.declare(f)
	f.StringVar(&a.client.sandbox, "sandbox", rpc.DefaultSandbox, "name of the sandbox")
	f.StringVarP(&a.client.output, "output", "o", "text", "text or json")
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch a.client.output {
		case "text":
		case "json":
			a.client.json = true
		default:
			return usagef("--output %q is neither text nor json", a.client.output)
		}
		sb, err := a.connect()
		if err != nil {
			return err
		}
		defer sb.Close()
		return run(cmd, sb, args)
	}
	return cmd
}

// connect finds the server and the token: flags, then the environment, then
// what serve --dev left.
func (a *app) connect() (*adapter.Sandbox, error) {
	opts := adapter.Options{Sandbox: a.client.sandbox, Client: "controld-cli/" + version()}
	opts.Control = firstOf(a.client.addr, os.Getenv("CONTROLD_ADDR"))
	data := firstOf(a.client.dataAddr, os.Getenv("CONTROLD_DATA_ADDR"))
	token, err := findToken(a.client.tokenFile)
	if err != nil {
		return nil, err
	}
	opts.Token = token
	if opts.TLS, err = a.client.tls.config(); err != nil {
		return nil, err
	}
	certified := opts.TLS != nil && len(opts.TLS.Certificates) > 0 // which may stand for a token
	if opts.Control == "" || opts.Token == "" && !certified {
		dev, err := devClient()
		if err != nil {
			return nil, err
		}
		opts.Control = firstOf(opts.Control, dev.Control)
		opts.Token = firstOf(opts.Token, dev.Token)
	}
	if data != "" {
		opts.Data = strings.Split(data, ",")
	}
	sb, err := adapter.New(opts)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return sb, nil
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func findToken(file string) (string, error) {
	if file == "" {
		if token := os.Getenv("CONTROLD_TOKEN"); token != "" {
			return token, nil
		}
		file = os.Getenv("CONTROLD_TOKEN_FILE")
	}
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// devClient reads what serve --dev left; where it left nothing the defaults
// remain.
func devClient() (daemon.DevClient, error) {
	dir, err := daemon.UserStateDir()
	if err != nil {
		return daemon.DevClient{}, err
	}
	c, err := daemon.FindDevClient(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return daemon.DevClient{Control: daemon.Default().Control[0]}, nil
	}
	return c, err
}

// remotePath takes the colon off a path of the sandbox.
func remotePath(arg string) string { return strings.TrimPrefix(arg, ":") }

// print writes a result of the wire as it stands.
func (a *app) print(r rpc.Result) error {
	_, err := a.stdout.Write(append(rpc.EncodeResult(nil, r), '\n'))
	return err
}
