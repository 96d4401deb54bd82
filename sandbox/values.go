package sandbox

import "time"

// Optional is a value that a backend may not know.
type Optional[T any] struct {
	Value T
	Known bool
}

// Some returns a known value.
func Some[T any](v T) Optional[T] { return Optional[T]{Value: v, Known: true} }

// FileType is what a path leads to.
type FileType string

// The types of files.
const (
	TypeFile      FileType = "file"
	TypeDirectory FileType = "directory"
	TypeSymlink   FileType = "symlink"
	TypeOther     FileType = "other"
)

// FileStat describes a path. Optional fields are absent where the backend
// does not know them; none is ever invented.
type FileStat struct {
	Type FileType
	// IsSymlink speaks of the path itself, also when Type is of what the
	// link leads to.
	IsSymlink Optional[bool]
	// Size is in bytes.
	Size Optional[int64]
	// ModTime has nanoseconds; absent outside the years 1 to 9999.
	ModTime Optional[time.Time]
	// Mode holds the permission bits, 0 to 0777.
	Mode Optional[uint32]
	// ETag names the version of the content; empty where not known.
	ETag string
}

// FileContent is what a buffered read returns.
type FileContent struct {
	Data []byte
	// Size is the whole file's size in bytes, not that of Data.
	Size int64
	ETag string
}

// WriteInfo is what a finished write returns.
type WriteInfo struct {
	// Bytes is the new file's size.
	Bytes int64
	ETag  string
	// Atomic is false when the file could not be replaced (a mount point)
	// and was written in place. Streams are always atomic.
	Atomic bool
}

// Listing is a directory's names, or one page of them.
type Listing struct {
	// Names are bytes, not always UTF-8, sorted by bytes.
	Names []string
	// More says that names beyond the Limit are left; go on After the last.
	More bool
}

// Reason tells how a command ended.
type Reason string

// The ways in which a command ends.
const (
	ReasonExited    Reason = "exited"
	ReasonSignaled  Reason = "signaled"
	ReasonTimedOut  Reason = "timed_out"
	ReasonOOMKilled Reason = "oom_killed"
)

// ExitTimedOut is the exit code of a command that ran into its timeout.
const ExitTimedOut = 124

// ShellResult is a finished command.
type ShellResult struct {
	Stdout, Stderr []byte
	// ExitCode is the shell's own, 128+n after signal n, 124 at a timeout.
	ExitCode int
	// Signal names the signal of ReasonSignaled without SIG, e.g. "KILL".
	Signal string
	Reason Reason
	// StdoutOmitted and StderrOmitted count the bytes left out between the
	// kept first and last half of an output over the limit.
	StdoutOmitted, StderrOmitted int64
	// Background is true when processes of the command still lived at the
	// result. They end with the sandbox.
	Background bool
	// KillPending is true when a process could not be killed in time.
	KillPending bool
	Duration    time.Duration
}

// Commit says how a sink ends.
type Commit struct {
	// Bytes is the count that must have arrived.
	Bytes int64
	// SHA256 is the digest in lower-case hex that they must have, or empty.
	// It needs WriteOptions.Digest at the open.
	SHA256 string
}

// ReadVerdict is what is known of the bytes of a finished read.
type ReadVerdict struct {
	// Changed is true when the file grew or was written meanwhile.
	Changed bool
	// SHA256 is the digest in lower-case hex of the bytes sent, where
	// ReadOptions.Digest asked for it.
	SHA256 string
}

// Capability names an ability of a backend.
type Capability = string

// The capabilities of protocol version 1.
const (
	CapExec    Capability = "exec"
	CapBatch   Capability = "batch"
	CapScope   Capability = "scope"
	CapIfMatch Capability = "if_match"
	CapSync    Capability = "sync"
	CapDigest  Capability = "digest"
	CapMux     Capability = "mux"
	// CapPlainData is told by a daemon that was set up to serve the data
	// plane in the clear beside an encrypted control plane.
	CapPlainData Capability = "plain_data"
	// CapSharedUser is told by an agent whose commands run as its own user.
	// Its memory and its socket are closed to them, but they can starve it, or
	// end it and with it their own sandbox.
	CapSharedUser Capability = "shared_user"
	// CapKeys: a call with the RequestKey of an earlier one, and the same
	// parameters, is that call: it joins it or gets its answer, and nothing is
	// done twice. A backend without it refuses keys as KindUnsupported.
	CapKeys Capability = "keys"
	// CapPassFiles is told by a server that hands files over on its Unix
	// sockets in place of their bytes. It is one connection's own: who serves
	// such a backend does not pass it on.
	CapPassFiles Capability = "pass_files"
	// CapSandboxes is told by a daemon that lists, starts, stops and removes
	// the sandboxes that the token covers. It is the daemon's own: a backend
	// is one sandbox and has none.
	CapSandboxes Capability = "sandboxes"
)

// Info tells what a sandbox is.
type Info struct {
	Tenant, Sandbox string
	// Cwd is where relative paths start, an absolute path.
	Cwd string
	// Epoch names this life of the sandbox; a new one means that processes
	// and transfers of the old are gone.
	Epoch        string
	Capabilities []Capability
	Limits       Limits
	// Tree tells how process trees are held: "cgroup" or "subreaper".
	Tree string
}

// Limits are the bounds a backend keeps. Zero means: not known.
type Limits struct {
	MaxMessageBytes          int64
	MaxInflight              int
	MaxQueued                int
	MaxWaitingTransfers      int
	MaxBatch                 int
	MaxDepth                 int
	MaxBufferedBytes         int64
	MaxOutputBytes           int64
	MaxBufferedInflightBytes int64
	WriteTimeout             time.Duration
	TokenTTL                 time.Duration
	StallTimeout             time.Duration
	KeptOutcomes             time.Duration
	// ReconnectGrace is how long a call with a key goes on when nobody waits
	// for it.
	ReconnectGrace time.Duration
	// KeptKeys is how long a key is remembered, also over a restart of the
	// server; zero where a restart forgets keys.
	KeptKeys time.Duration
}

// DefaultLimits returns the limits of protocol version 1.
func DefaultLimits() Limits {
	return Limits{
		MaxMessageBytes:          32 << 20,
		MaxInflight:              128,
		MaxQueued:                1024,
		MaxWaitingTransfers:      1024,
		MaxBatch:                 64,
		MaxDepth:                 64,
		MaxBufferedBytes:         16 << 20,
		MaxOutputBytes:           8 << 20,
		MaxBufferedInflightBytes: 128 << 20,
		WriteTimeout:             30 * time.Second,
		TokenTTL:                 30 * time.Second,
		StallTimeout:             600 * time.Second,
		KeptOutcomes:             60 * time.Second,
		ReconnectGrace:           30 * time.Second,
	}
}
