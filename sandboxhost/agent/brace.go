package agent

import (
	"context"

	"github.com/controld/controld/sandbox/local"
)

// Brace readies this process for life beside commands that may be hostile,
// before anything else is done, and returns the context to run in.
//
// Memory, environment and descriptors are closed to commands, see [local.Hide].
// Process 1 cannot be ended by any signal from its namespace, and by SIGKILL
// alone from outside: who sent a signal is not told, so there is none that ends
// it in good order, and the end of ctx, which may be by a signal, is not passed
// on. A fault of its own, as a nil pointer, ends it at once and without a word.
//
// Where commands are of the same user, ways are left in which they can end it:
// its limits (prlimit(2)) are theirs to lower.
func Brace(ctx context.Context) (context.Context, error) {
	if err := local.Hide(); err != nil {
		return nil, err
	}
	if !first() {
		return ctx, nil
	}
	return context.WithoutCancel(ctx), deafen()
}
