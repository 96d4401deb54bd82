package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/work"
)

// Agent is the server inside a sandbox: both planes on one address, one
// secret, the place itself behind it.
type Agent struct {
	// Listen is the URL to listen on.
	Listen string
	// SecretSHA256 is the digest of the secret that hello must show. The
	// secret itself is told to nobody here.
	SecretSHA256 [32]byte
	// Cwd is where relative paths start.
	Cwd      string
	Insecure bool
	Version  string
	// TmpfsWrites is as in [dataport.PassRules].
	TmpfsWrites []uint64
	// Keeper is as in [Options].
	Keeper []string
	// Ready, where not nil, is called once with the URL that accepts.
	Ready func(url string)
}

// Run serves until ctx ends.
func (a Agent) Run(ctx context.Context) error {
	e, err := dataport.ParseEndpoint(a.Listen)
	if err != nil {
		return err
	}
	if !e.Private() && !a.Insecure {
		return fmt.Errorf("listen: %s would speak in the clear beyond this machine; say --insecure if that is meant", a.Listen)
	}
	state, err := os.MkdirTemp("", "controld-agent-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	keeper := newKeeper(a.Keeper)
	if keeper != nil {
		defer keeper.Close()
	}
	sb, err := local.New(local.Options{DefaultCwd: a.Cwd, StateDir: filepath.Join(state, "journal"), Tenant: agentTenant, Keeper: keeper})
	if err != nil {
		return err
	}
	defer sb.Close()
	keys, err := work.NewKeys(work.KeysConfig{}) // they end with the sandbox
	if err != nil {
		return err
	}
	defer keys.Close()
	var ln net.Listener
	var at dataport.Endpoint
	if os.Getenv("LISTEN_FDS") != "1" {
		ln, at, err = listenOn(a.Listen, dataport.ListenOptions{})
	}
	if os.Getenv("LISTEN_FDS") == "1" {
		ln, err = net.FileListener(os.NewFile(3, "l"))
		at = e
	}
	if err != nil {
		return err
	}
	srv := server.New(server.Config{
		Host:       agentHost{sb, sandboxhost.SecretGrants(a.SecretSHA256, sandboxhost.Grant{Tenant: agentTenant, Sandbox: sandboxhost.AnySandbox})},
		Keys:       keys,
		ServerName: "controld-agent/" + a.Version,
		PassFiles:  &dataport.PassRules{TmpfsWrites: a.TmpfsWrites},
		DataURLs:   func(net.Addr) []string { return advertised([]string{at.String()}) },
	})
	defer srv.Close()
	if a.Ready != nil {
		a.Ready(at.String())
	}
	if err := srv.Serve(ctx, ln, server.Control|server.Data); ctx.Err() == nil {
		return err
	}
	return nil
}

const agentTenant = "agent"

// agentHost lets the holder of the one secret in.
type agentHost struct {
	backend sandbox.Backend
	tokens  *sandboxhost.Tokens
}

// Open implements server.Host.
func (h agentHost) Open(ctx context.Context, hello rpc.HelloParams, _ server.Visitor) (*server.Session, error) {
	grant, err := h.tokens.Authenticate(hello)
	if err != nil {
		return nil, err
	}
	info, err := h.backend.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &server.Session{Tenant: grant.Tenant, Sandbox: hello.Sandbox, Backend: h.backend, Info: info, Epoch: info.Epoch}, nil
}

// Relay joins a stream, such as the standard input and output of an exec, to
// an agent's address until either side ends.
func Relay(ctx context.Context, url string, in io.Reader, out io.Writer) error {
	e, err := dataport.ParseEndpoint(url)
	if err != nil {
		return err
	}
	conn, err := dataport.Dialer{}.Dial(ctx, e)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	go func() {
		io.Copy(conn, in)
		dataport.CloseWrite(conn)
	}()
	_, err = io.Copy(out, conn)
	return err
}
