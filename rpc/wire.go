package rpc

import "time"

// ProtocolVersion is the version of the protocol that this package speaks.
const ProtocolVersion = 1

// The methods of the protocol.
const (
	MethodHello           = "hello"
	MethodPing            = "ping"
	MethodCancel          = "$/cancelRequest"
	MethodReadFile        = "read_file"
	MethodReadFileBuffer  = "read_file_buffer"
	MethodWriteFile       = "write_file"
	MethodStat            = "stat"
	MethodReadDir         = "readdir"
	MethodExists          = "exists"
	MethodMkdir           = "mkdir"
	MethodRm              = "rm"
	MethodExec            = "exec"
	MethodReadFileStream  = "read_file_stream"
	MethodWriteFileStream = "write_file_stream"
	MethodTransferResult  = "transfer_result"
	MethodTransferCommit  = "transfer_commit"
	MethodTransferAbort   = "transfer_abort"
	MethodSandboxList     = "sandbox_list"
	MethodSandboxInfo     = "sandbox_info"
	MethodSandboxCreate   = "sandbox_create"
	MethodSandboxRemove   = "sandbox_remove"
	MethodSandboxExtend   = "sandbox_extend"
	MethodSandboxPause    = "sandbox_pause"
	MethodSandboxResume   = "sandbox_resume"
)

// Bounds of the wire that no hello changes.
const (
	// MaxHelloLine is the longest line before a successful hello, in bytes.
	MaxHelloLine = 16 << 10
	// MaxDepth is how deep arrays and objects may nest, the outermost
	// counted as one.
	MaxDepth = 64
	// MaxIDBytes is the longest request id, as it is written.
	MaxIDBytes = 64 << 10
	// MaxExecTimeout is the longest timeout_s and kill_grace_s.
	MaxExecTimeout = 604800 * time.Second
	// MaxSandboxExtend is the most that sandbox_extend takes at once.
	MaxSandboxExtend = 366 * 24 * time.Hour
	// maxInt is the first integer that does not travel safely.
	maxInt = 1 << 53
)

// MuxYamux is the one value of hello's mux.
const MuxYamux = "yamux"

// MuxEndpoint stands in a transfer's endpoints for: open a stream on the
// session that minted it.
const MuxEndpoint = "mux:"

// methods lists all methods.
var methods = [...]string{
	MethodExec, MethodReadFile, MethodStat, MethodWriteFile, MethodReadDir, MethodExists, MethodMkdir, MethodRm,
	MethodPing, MethodCancel, MethodReadFileBuffer, MethodReadFileStream, MethodWriteFileStream,
	MethodTransferResult, MethodTransferCommit, MethodTransferAbort, MethodHello,
	MethodSandboxList, MethodSandboxInfo, MethodSandboxCreate, MethodSandboxRemove, MethodSandboxExtend,
	MethodSandboxPause, MethodSandboxResume,
}
