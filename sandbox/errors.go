package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Kind is the class of an error: what a client decides by.
type Kind string

// The kinds. The list is closed; those up to KindInternal travel on the wire.
const (
	KindParseError        Kind = "parse_error"
	KindInvalidRequest    Kind = "invalid_request"
	KindMessageTooLarge   Kind = "message_too_large"
	KindUnknownMethod     Kind = "unknown_method"
	KindInvalidParams     Kind = "invalid_params"
	KindUnauthenticated   Kind = "unauthenticated"
	KindPermission        Kind = "permission"
	KindReadOnly          Kind = "read_only"
	KindNotFound          Kind = "not_found"
	KindExists            Kind = "exists"
	KindNotEmpty          Kind = "not_empty"
	KindIsDirectory       Kind = "is_directory"
	KindNotDirectory      Kind = "not_directory"
	KindNotRegular        Kind = "not_regular"
	KindLoop              Kind = "loop"
	KindNameTooLong       Kind = "name_too_long"
	KindCrossDevice       Kind = "cross_device"
	KindBusy              Kind = "busy"
	KindTooLarge          Kind = "too_large"
	KindNoSpace           Kind = "no_space"
	KindConflict          Kind = "conflict"
	KindChanged           Kind = "changed"
	KindTokenInvalid      Kind = "token_invalid"
	KindTruncated         Kind = "truncated"
	KindAborted           Kind = "aborted"
	KindStalled           Kind = "stalled"
	KindCorrupt           Kind = "corrupt"
	KindResourceExhausted Kind = "resource_exhausted"
	KindUnavailable       Kind = "unavailable"
	KindUnsupported       Kind = "unsupported"
	KindArgumentTooLong   Kind = "argument_too_long"
	KindStartFailed       Kind = "start_failed"
	KindCancelled         Kind = "cancelled"
	KindInternal          Kind = "internal"

	// The client's own, on every implementation alike. KindOutcomeUnknown also
	// travels, with ReasonRequestKey, in answer to a call with a key.
	KindConnectionLost Kind = "connection_lost"
	KindOutcomeUnknown Kind = "outcome_unknown"
	KindInvalidUTF8    Kind = "invalid_utf8"
)

// Outcome tells what is known of a call that did not end well.
type Outcome string

// The outcomes. Empty means that the kind itself says it.
const (
	OutcomeNone    Outcome = "none"
	OutcomeUnknown Outcome = "unknown"
)

// The reasons of KindUnavailable.
const (
	ReasonDraining         = "draining"
	ReasonSandboxRestarted = "sandbox_restarted"
	ReasonSandboxStuck     = "sandbox_stuck"
	ReasonSandboxPaused    = "sandbox_paused"
	ReasonLinkLost         = "link_lost"
	// ReasonOutOfMemory: the sandbox has ended since it had no more memory.
	ReasonOutOfMemory = "oom_killed"
)

// ReasonRequestKey is the reason of a KindOutcomeUnknown whose key is known
// and its answer no longer, and of a KindResourceExhausted where the key cannot
// be remembered: then nothing was done, and the call may come without one.
const ReasonRequestKey = "request_key"

// Error is the error of every method of [API] and [Backend].
type Error struct {
	Kind Kind
	// Op is the method or system call, Path the caller's own path.
	Op, Path string
	// Errno is the symbolic name of the error number, e.g. "ENOENT".
	Errno   string
	Outcome Outcome
	// Reason says why, where the kind leaves that open.
	Reason string
	// Message says it in words; it is made up from the rest where empty.
	Message string
	// Limit is the bound that was hit (too_large, resource_exhausted).
	Limit Optional[int64]
	// Bytes is how far a transfer came, Expected how far it should have.
	Bytes, Expected Optional[int64]
	// RetryAfter is when to try again (resource_exhausted).
	RetryAfter time.Duration
	// Protocols are the versions a server speaks (unsupported, in hello).
	Protocols []int
	// Err is the cause, if any. It never travels.
	Err error
}

// Error returns "op path: reason".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Path != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(printable(e.Path))
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Text())
	return b.String()
}

// Text returns the reason alone, without op and path.
func (e *Error) Text() string {
	s := e.Message
	if s == "" {
		s = strings.ReplaceAll(string(e.Kind), "_", " ")
		if e.Reason != "" {
			s += " (" + e.Reason + ")"
		}
	}
	if e.Bytes.Known && e.Expected.Known {
		s += " (" + strconv.FormatInt(e.Bytes.Value, 10) + " of " + strconv.FormatInt(e.Expected.Value, 10) + " bytes)"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is hold alike on every backend: with another *Error of the
// same kind, with the errors of io/fs, with context errors and with errnos.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case *Error:
		return t.Kind == e.Kind && (t.Op == "" || t.Op == e.Op) && (t.Path == "" || t.Path == e.Path)
	case syscall.Errno:
		return e.isErrno(t)
	}
	switch target {
	case fs.ErrNotExist:
		return e.Kind == KindNotFound
	case fs.ErrExist:
		return e.Kind == KindExists || e.Kind == KindNotEmpty
	case fs.ErrPermission:
		return e.Kind == KindPermission || e.Kind == KindReadOnly && e.Errno == "EPERM"
	case fs.ErrInvalid:
		return e.Kind == KindInvalidParams
	case context.Canceled:
		return e.Kind == KindCancelled && !errors.Is(e.Err, context.DeadlineExceeded)
	}
	return false
}

func (e *Error) isErrno(want syscall.Errno) bool {
	name := e.Errno
	if name == "" {
		name = errnoName(e.Kind)
	}
	got, ok := errnoNumber(name)
	return ok && got == want
}

// KindOf returns the kind of err, KindInternal for an error of another type
// and the empty kind for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return KindCancelled
	}
	return KindInternal
}

// AsError returns err as an *Error: itself where it is one, a context error
// as KindCancelled, an errno by [FromErrno], anything else as KindInternal
// with an unknown outcome. It is nil for nil.
func AsError(op, path string, err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &Error{Kind: KindCancelled, Op: op, Path: path, Err: err}
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		return FromErrno(op, path, no)
	}
	return &Error{Kind: KindInternal, Op: op, Path: path, Outcome: OutcomeUnknown, Message: err.Error(), Err: err}
}

// Cancelled returns the error of a call whose context ended.
func Cancelled(ctx context.Context, op, path string) *Error {
	return &Error{Kind: KindCancelled, Op: op, Path: path, Err: context.Cause(ctx)}
}

// printable quotes a path that would break a line of text.
func printable(p string) string {
	q := strconv.Quote(p)
	if q == `"`+p+`"` {
		return p
	}
	return q
}
