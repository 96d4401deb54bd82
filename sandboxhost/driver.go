package sandboxhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/controld/controld/sandbox"
)

// Driver starts sandboxes of one kind of isolation. It only makes the place
// and starts the agent there; files, commands and streams come from the agent,
// over the [Link].
type Driver interface {
	// Name is what --driver calls it.
	Name() string
	// Start starts a sandbox. ctx bounds the start alone. The agent may still
	// be starting when it returns: hello waits for it. What a driver cannot do
	// of the spec it refuses as sandbox.KindUnsupported. The caller stops the
	// instance.
	Start(ctx context.Context, spec Spec) (Instance, error)
	// Adopt returns the instance that Start made of this spec in an earlier
	// life of the host. Where that has ended it removes what is left of it and
	// returns [ErrGone]. It touches nothing that is not of this spec's ID.
	Adopt(ctx context.Context, spec Spec) (Instance, error)
}

// Storer is a [Driver] that keeps the files of sandboxes elsewhere than in
// Spec.Dir.
type Storer interface {
	// Discard removes what the driver keeps of the sandbox whose directory dir
	// is now, and which has ended. There may be nothing, or nothing any more.
	Discard(ctx context.Context, dir string) error
}

// ErrGone is what Adopt returns of an instance that has ended.
var ErrGone = errors.New("the instance has ended")

// Spec says what to start. The host keeps it in the directory Run for as long
// as the instance may live, so that another life of the host can adopt it.
type Spec struct {
	// ID is a UUID of this one instance. What a driver makes outside Run is
	// named or labelled with it.
	ID     string `json:"id"`
	Driver string `json:"driver"`
	// Tier names that of which it is; see [Tier].
	Tier            string `json:"tier,omitempty"`
	Tenant, Sandbox string
	// Secret opens the agent: hello must show it. The agent is told its
	// SHA-256 alone.
	Secret string `json:"secret"`
	// IDs are the users and groups of the host that are this sandbox's alone.
	IDs IDs `json:"ids"`
	// Box is what the sandbox is made of.
	Box Box `json:"box"`
	// Started is when the instance was about to be started, Ends when it will
	// be stopped, where somebody has moved that.
	Started time.Time `json:"started,omitzero"`
	Ends    time.Time `json:"ends,omitzero"`
	// Paused says that it was, or was about to be.
	Paused bool `json:"paused,omitempty"`

	// Dir is the sandbox's own directory on the host. It exists, survives
	// restarts and holds nothing of the daemon's.
	Dir string `json:"-"`
	// Run is a directory of this instance alone, mode 0700, which the host
	// makes before Start and removes behind the end.
	Run string `json:"-"`
	// Journal is a directory for what must be swept should the daemon die.
	Journal string `json:"-"`
	// State is a directory of the sandbox's agent, which outlives it like Dir and
	// which no command may reach. A driver that has it makes it.
	State string `json:"-"`
	// Epoch names this life of the sandbox.
	Epoch  string         `json:"-"`
	Limits sandbox.Limits `json:"-"`
}

// IDs are users and groups of the host, Count from Base on. Zero says that the
// host can give none away: it is no root.
type IDs struct {
	Base  int `json:"base"`
	Count int `json:"count"`
}

// Box says what sandboxes are made of. Zero means: no bound, the driver's own
// choice. A driver refuses what it cannot hold; it never ignores it.
type Box struct {
	// Image names what the root is made from, as the driver's engine does; the
	// host's own programs where empty.
	Image string `json:"image,omitempty"`
	// Memory is the most that all processes have at once, in bytes, swap
	// included.
	Memory int64 `json:"memory,omitempty"`
	// Processes and threads at once.
	Processes int64 `json:"processes,omitempty"`
	// CPUs is the share of processors, 1.5 is one and a half.
	CPUs float64 `json:"cpus,omitempty"`
	// Network is [NetworkNone] where empty.
	Network Network `json:"network,omitempty"`
}

// Network says what a sandbox reaches.
type Network string

// The kinds of network.
const (
	// NetworkNone is a loopback of its own and nothing else.
	NetworkNone Network = "none"
	// NetworkHost is the host's own network, with all that it reaches.
	NetworkHost Network = "host"
)

// Known tells whether it is one of them, or empty.
func (n Network) Known() bool { return n == "" || n == NetworkNone || n == NetworkHost }

// Unsupported is what a driver says of that which it cannot do or hold.
func Unsupported(op, format string, args ...any) error {
	return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: op, Message: fmt.Sprintf(format, args...)}
}

// Instance is a sandbox that runs.
type Instance interface {
	// Link is the way in. It is the same for as long as the instance lives.
	Link() Link
	// Done is closed when the sandbox has ended, by itself or by Stop.
	Done() <-chan struct{}
	// Death tells why it ended; it may be asked once Done is closed.
	Death() Death
	// Stop ends the sandbox and every process in it, removes what the driver
	// made outside Spec.Dir, and waits. It may be called twice.
	Stop() error
	// Stats tells what the sandbox uses, sandbox.KindUnsupported where the
	// driver does not know.
	Stats(ctx context.Context) (Stats, error)
	// Pause stops all processes until Resume; sandbox.KindUnsupported where
	// the driver cannot.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// OOMCounter is an [Instance] that knows how many of its processes were killed
// since it had no more memory.
type OOMCounter interface {
	OOMKills() int64
}

// Link is the way into a sandbox, and what can be done over it, as data.
type Link struct {
	// Backend is the sandbox itself where it runs in this process; then there
	// is nothing to dial and the other fields say nothing.
	Backend sandbox.Backend
	// Dial opens a connection to the agent, again at any time. The caller
	// closes it.
	Dial func(ctx context.Context) (net.Conn, error)
	// MaxConns is how many connections there can be at once; 0 is any number.
	// With 1 both planes go through one, multiplexed.
	MaxConns int
	// Files says that the agent can hand over descriptors of files: it runs on
	// this kernel and Dial returns Unix sockets.
	Files bool
}

// Stats are what a sandbox uses.
type Stats struct {
	// CPU is the time on processors since its start.
	CPU time.Duration
	// Memory in bytes and Processes are those of now.
	Memory    int64
	Processes int64
}

// Death tells why a sandbox ended. It is zero after a stop that was asked for.
type Death struct {
	// OutOfMemory: it had no more.
	OutOfMemory bool
	// Stuck: its agent did not answer any more, and the host ended it.
	Stuck bool
	// Detail says it in words, for logs: an exit status, the last words of the
	// agent.
	Detail string
}

// Reason is what calls are told of it, as the reason of
// sandbox.KindUnavailable.
func (d Death) Reason() string {
	if d.OutOfMemory {
		return sandbox.ReasonOutOfMemory
	}
	if d.Stuck {
		return sandbox.ReasonSandboxStuck
	}
	return sandbox.ReasonSandboxRestarted
}
