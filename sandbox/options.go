package sandbox

import "time"

// ReadOptions are the parameters of the read calls. The zero value reads the
// whole file.
type ReadOptions struct {
	// Scope is a directory the path must not leave, or empty.
	Scope string
	// Offset is where to start, in bytes; past the end is an empty read.
	Offset int64
	// Length is how many bytes to read at most; all where absent.
	Length Optional[int64]
	// IfMatch (streams) refuses any other version than this etag.
	IfMatch string
	// Digest (streams) asks for the SHA-256 of the bytes sent.
	Digest bool
	// InlineMax is a hint to OpenRead: content up to so many bytes may come
	// with the answer, without a transfer of its own.
	InlineMax Optional[int64]
	// RequestKey (streams), see [CapKeys]: a mint with the same key is the
	// same mint.
	RequestKey string
}

// WriteOptions are the parameters of the write calls.
type WriteOptions struct {
	// Scope is a directory the path must not leave, or empty.
	Scope string
	// Mode holds the permission bits of a new file (0644 where absent); a
	// file that exists keeps its own unless Mode is given.
	Mode Optional[uint32]
	// IfMatch refuses to replace any other version than this etag.
	IfMatch string
	// Sync makes the write survive a crash of the host.
	Sync bool
	// Size (streams) reserves space; a commit of another count is
	// KindTruncated.
	Size Optional[int64]
	// Parents (OpenWrite) makes missing parents, for an adapter's buffered
	// writes alone.
	Parents bool
	// Digest (streams) has the far end compare the SHA-256 of what arrived
	// with that of what was sent.
	Digest bool
	// RequestKey, a UUID, see [CapKeys].
	RequestKey string
}

// StatOptions are the parameters of Stat.
type StatOptions struct {
	Scope string
	// NoFollow describes a link itself, not what it leads to.
	NoFollow bool
}

// ReadDirOptions are the parameters of ReadDir.
type ReadDirOptions struct {
	Scope string
	// After starts behind this name, in byte order; empty from the start.
	After string
	// Limit is the most names to return; zero returns all of them, or
	// KindTooLarge.
	Limit int
}

// ExistsOptions are the parameters of Exists.
type ExistsOptions struct {
	Scope string
}

// MkdirOptions are the parameters of Mkdir.
type MkdirOptions struct {
	Scope     string
	Recursive bool
	// RequestKey, a UUID, see [CapKeys].
	RequestKey string
}

// RmOptions are the parameters of Rm.
type RmOptions struct {
	Scope     string
	Recursive bool
	// Force makes a missing path a success.
	Force bool
	// RequestKey, a UUID, see [CapKeys].
	RequestKey string
}

// ExecOptions are the parameters of Exec.
type ExecOptions struct {
	// Cwd is where the command starts; the sandbox's own where empty.
	Cwd string
	// Env is added to the clean base environment.
	Env map[string]string
	// Timeout counts from the start of the process; none where zero.
	Timeout time.Duration
	// Stdin is all of the command's input.
	Stdin []byte
	// MaxOutputBytes bounds each of stdout and stderr; the backend's limit
	// where absent.
	MaxOutputBytes Optional[int64]
	// KillGrace lies between TERM and KILL; 0.1 s where absent.
	KillGrace Optional[time.Duration]
	// RequestKey, a UUID, see [CapKeys]. A command that has one lives on for
	// [Limits.ReconnectGrace] when the connection it came by is lost.
	RequestKey string
	// Detach has a command with a RequestKey live on without that bound.
	Detach bool
	// Grow, where set, is asked before n more bytes of output are kept; when
	// it says no they are counted as omitted instead. It never travels.
	Grow func(n int) bool
}
