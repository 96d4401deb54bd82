package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/controld/controld/sandbox/local"
)

// keepWord is the argument with which a program does nothing but end the
// commands of an agent that was killed.
const keepWord = "__keep"

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a mistake in the command line.
type usageError struct{ error }

// Main is the agent as a whole program, which is called name; args are those
// of the process, or a program's that is the agent only where it is told so,
// without that word. It returns the exit code.
func Main(name, version string, args []string) int {
	if len(args) == 2 && args[1] == keepWord {
		return local.Keep()
	}
	// The kernel leaves signals to the first thread: nothing but this runs on it.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	wrong := func(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
	cmd := New(Options{Name: name, Version: version, Wrong: wrong, Keeper: []string{"/proc/self/exe", args[0], keepWord}})
	cmd.SetArgs(args[1:])
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", name, err)
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailure
}
