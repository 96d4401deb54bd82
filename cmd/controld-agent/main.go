// Command controld-agent is the agent alone, for drivers to put into sandboxes:
// a static binary that knows nothing of the daemon and the client. What it does
// is what `controld agent` does.
//
//	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" ./cmd/controld-agent
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/controld/controld/cmd/internal/agentcmd"
	"github.com/controld/controld/sandbox/local"
)

// release is set by -ldflags "-X main.release=..." in release builds.
var release = "0.1.0-dev"

// keepWord is the argument with which this program does nothing but end the
// commands of an agent that was killed.
const keepWord = "__keep"

func main() {
	if len(os.Args) == 2 && os.Args[1] == keepWord {
		os.Exit(local.Keep())
	}
	// The kernel leaves signals to the first thread: nothing but this runs on it.
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:]))
}

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	wrong := func(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
	cmd := agentcmd.New(agentcmd.Options{
		Name: "controld-agent", Version: release, Wrong: wrong,
		Keeper: []string{"/proc/self/exe", os.Args[0], keepWord},
	})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(os.Stderr, "controld-agent: %s\n", err)
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailure
}
