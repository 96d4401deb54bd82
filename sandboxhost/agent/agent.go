package agent

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/rpc/server/gate"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/work"
)

// Agent is what the server inside a sandbox is made of.
type Agent struct {
	// Listen is the URL to listen on, or what a Unix socket that was handed
	// over stands for: one by LISTEN_FDS, see sd_listen_fds(3), is taken
	// instead of opening another.
	Listen string
	// SecretSHA256 is the digest of the secret that hello must show. The
	// secret itself is told to nobody here.
	SecretSHA256 [32]byte
	// Cwd is where relative paths start. It is made where it is missing.
	Cwd string
	// State is the directory in which is written down what has to be removed
	// if this process is killed; what one that is gone wrote there is removed
	// first, so its host waits for its end before it starts another. It outlives
	// the process like the files themselves, and no command should reach it: a
	// mount of the agent's alone, or /proc/self/fd/N for one that was handed
	// over open. Where empty, a write that is cut by the end of the process may
	// leave a file beside its target.
	State    string
	Insecure bool
	Version  string
	// User, where not nil, is who commands run as and whose rights file calls
	// have. It is for process 1 that is root of its namespace, built without
	// cgo, on a kernel that lets threads reach files as another user; else Run
	// fails.
	User *local.User
	// Processes bounds the processes and threads that User has at once, where it
	// is not zero.
	Processes uint64
	// Own, where not nil, is who this process is beside that user: root of its
	// namespace may be root of the machine.
	Own *local.User
	// Traceable leaves out what keeps commands from this process.
	Traceable bool
	// TmpfsWrites is as in [dataport.PassRules].
	TmpfsWrites []uint64
	// Keeper is the command line of the process that ends commands when this
	// one is killed. Process 1 needs none, and starts none.
	Keeper []string
	// Ready, where not nil, is called once with the URL that accepts.
	Ready func(url string)
}

// strangers is how many connections that have not authenticated an agent keeps:
// those of its host are so for a moment only.
const strangers = 1024

// Run serves until ctx ends, and returns nil then.
func (a Agent) Run(ctx context.Context) error {
	ln, at, err := a.listen()
	if err != nil {
		return err
	}
	defer ln.Close()
	if err := a.brace(); err != nil {
		return err
	}
	sb, end, err := a.place()
	if err != nil {
		return err
	}
	defer end()
	keys, err := work.NewKeys(work.KeysConfig{}) // they end with the sandbox
	if err != nil {
		return err
	}
	defer keys.Close()
	h := &host{backend: sb, tokens: sandboxhost.SecretGrants(a.SecretSHA256, sandboxhost.Grant{Tenant: tenant, Sandbox: sandboxhost.AnySandbox})}
	srv := server.New(server.Config{
		Host:         h,
		Keys:         keys,
		PassFiles:    &dataport.PassRules{TmpfsWrites: a.TmpfsWrites},
		ServerName:   "controld-agent/" + a.Version,
		DataURLs:     func(net.Addr) []string { return []string{at.Told()} },
		Capabilities: a.capabilities(),
		Gate:         gate.New(gate.Limits{Strangers: strangers}),
	})
	defer srv.Close()
	h.left = srv.Left
	if a.Ready != nil {
		a.Ready(at.String())
	}
	if err := srv.Serve(ctx, ln, server.Control|server.Data); ctx.Err() == nil {
		return err
	}
	return nil
}

// capabilities are those beside the server's own.
func (a Agent) capabilities() []string {
	if a.User != nil {
		return nil
	}
	return []string{sandbox.CapSharedUser}
}

const tenant = "agent"

// leaveTimeout is how long a hello waits for what a connection before it had
// begun, and which is being cancelled.
const leaveTimeout = 3 * time.Second

// place opens the place itself, and what ends it.
func (a Agent) place() (_ *local.Sandbox, end func(), err error) {
	if a.State != "" {
		if err := local.SweepOf(a.State, a.User); err != nil {
			return nil, nil, err
		}
	}
	var keeper *local.Keeper
	if len(a.Keeper) > 0 && !first() {
		keeper = local.NewKeeper(a.Keeper[0], a.Keeper[1:]...)
	}
	sb, err := local.New(local.Options{DefaultCwd: a.Cwd, StateDir: a.State, Tenant: tenant, Keeper: keeper, User: a.User})
	end = func() {
		if sb != nil {
			sb.Close()
		}
		if keeper != nil {
			keeper.Close()
		}
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return sb, end, nil
}

// first tells whether this is process 1, with which its namespace ends.
func first() bool { return os.Getpid() == 1 }

// host lets the holder of the one secret in.
type host struct {
	backend sandbox.Backend
	tokens  *sandboxhost.Tokens
	left    func(context.Context) error
}

// Open implements server.Host. What a connection that is gone had begun is over
// by then, where that does not take longer than a hello may.
func (h *host) Open(ctx context.Context, hello rpc.HelloParams, _ server.Visitor) (*server.Session, error) {
	grant, err := h.tokens.Authenticate(hello)
	if err != nil {
		return nil, err
	}
	leave, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	h.left(leave)
	info, err := h.backend.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &server.Session{Tenant: grant.Tenant, Sandbox: hello.Sandbox, Backend: h.backend, Info: info, Epoch: info.Epoch}, nil
}
