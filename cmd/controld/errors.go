package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/controld/controld/sandbox"
)

// The exit codes of every command but exec.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitPermission  = 4
	exitConflict    = 5
	exitUnreachable = 6
	exitLimit       = 7
	exitInterrupted = 130
)

// The exit codes of exec for what is not the command's own.
const (
	exitExecFailed   = 125
	exitExecCannot   = 126
	exitExecNotFound = 127
)

// usageError is a mistake in the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exitError ends a command with a code and, unless silent, nothing more.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report tells of an error and returns the exit code.
func (a *app) report(ctx context.Context, cmd *cobra.Command, err error) int {
	var exit exitError
	if errors.As(err, &exit) {
		return int(exit)
	}
	isExec := cmd != nil && cmd.Name() == "exec"
	code := exitCode(err, isExec)
	if ctx.Err() != nil && (sandbox.KindOf(err) == sandbox.KindCancelled || errors.Is(err, context.Canceled)) {
		code = exitInterrupted
	}
	if a.client.json {
		a.reportJSON(err)
		return code
	}
	fmt.Fprintf(a.stderr, "controld: %s\n", oneLine(err.Error()))
	if hint := hintFor(err); hint != "" {
		fmt.Fprintf(a.stderr, "hint: %s\n", hint)
	}
	return code
}

// oneLine keeps an error on one line, whatever a path holds.
func oneLine(s string) string { return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(s) }

func (a *app) reportJSON(err error) {
	kind := sandbox.KindOf(err)
	var usage *usageError
	if errors.As(err, &usage) {
		kind = "usage"
	}
	text, _ := json.Marshal(map[string]any{"error": map[string]any{
		"kind": kind, "message": err.Error(), "hint": hintFor(err), "retryable": retryable(err),
	}})
	fmt.Fprintf(a.stdout, "%s\n", text)
}

// retryable tells whether the same call may succeed later and cannot have
// happened already.
func retryable(err error) bool {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case sandbox.KindResourceExhausted:
		return true
	case sandbox.KindUnavailable, sandbox.KindConnectionLost:
		return e.Outcome == sandbox.OutcomeNone
	}
	return false
}

func exitCode(err error, isExec bool) int {
	var usage *usageError
	var e *sandbox.Error
	isUsage := errors.As(err, &usage)
	typed := errors.As(err, &e)
	switch {
	case isExec && typed && e.Kind == sandbox.KindStartFailed && e.Errno == "ENOENT":
		return exitExecNotFound
	case isExec && typed && (e.Kind == sandbox.KindStartFailed || e.Kind == sandbox.KindArgumentTooLong):
		return exitExecCannot
	case isExec:
		return exitExecFailed
	case isUsage:
		return exitUsage
	case !typed:
		return exitFailure
	}
	return codeOfKind(e.Kind)
}

func codeOfKind(kind sandbox.Kind) int {
	switch kind {
	case sandbox.KindNotFound:
		return exitNotFound
	case sandbox.KindPermission, sandbox.KindReadOnly, sandbox.KindUnauthenticated, sandbox.KindTokenInvalid:
		return exitPermission
	case sandbox.KindConflict, sandbox.KindChanged, sandbox.KindExists, sandbox.KindNotEmpty, sandbox.KindBusy:
		return exitConflict
	case sandbox.KindUnavailable, sandbox.KindConnectionLost, sandbox.KindOutcomeUnknown, sandbox.KindStalled:
		return exitUnreachable
	case sandbox.KindTooLarge, sandbox.KindNoSpace, sandbox.KindResourceExhausted, sandbox.KindArgumentTooLong:
		return exitLimit
	case sandbox.KindInvalidParams:
		return exitUsage
	}
	return exitFailure
}

func isFailure[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// hintFor says what to do about an error, where there is something to do.
func hintFor(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return ""
	}
	switch {
	case isFailure[*tls.CertificateVerificationError](err):
		return "--tls-ca names who signed the server's certificate, --tls-server-name the name in it"
	case isFailure[tls.RecordHeaderError](err):
		return "the server does not speak TLS there: is it a tcp:// address?"
	case e.Kind == sandbox.KindUnauthenticated && e.Reason == "certificate":
		return "--tls-cert and --tls-key show a certificate that --tls-client-ca of the server has signed"
	case e.Kind == sandbox.KindUnavailable && e.Reason == "unreachable":
		return "is the daemon running? controld serve --dev starts one; --addr or CONTROLD_ADDR names another"
	case e.Kind == sandbox.KindUnauthenticated:
		return "set CONTROLD_TOKEN or CONTROLD_TOKEN_FILE; controld token new makes a token"
	case e.Kind == sandbox.KindNotFound && e.Op == "write_file_stream":
		return "the parent directory must exist; --parents makes it"
	case e.Kind == sandbox.KindIsDirectory && e.Op == "rm":
		return "-r removes a directory with all that is in it"
	case e.Kind == sandbox.KindTooLarge && strings.HasPrefix(e.Op, "read_file"):
		return "controld cp streams files of any size"
	case e.Kind == sandbox.KindResourceExhausted:
		return "try again in a moment"
	}
	return ""
}
