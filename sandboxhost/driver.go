package sandboxhost

import (
	"context"

	"github.com/controld/controld/sandbox"
)

// Driver starts sandboxes of one kind of isolation.
type Driver interface {
	// Name is what --driver calls it.
	Name() string
	// Start starts a sandbox. ctx bounds the start alone. The caller stops
	// the instance.
	Start(ctx context.Context, spec Spec) (Instance, error)
}

// Spec says what to start.
type Spec struct {
	Tenant, Sandbox string
	// Dir is the sandbox's own directory on the host. It exists, survives
	// restarts and holds nothing of the daemon's.
	Dir string
	// Journal is a directory for what must be swept should the daemon die.
	Journal string
	// Epoch names this life of the sandbox.
	Epoch  string
	Limits sandbox.Limits
}

// Instance is a sandbox that runs.
type Instance interface {
	// Backend is the way in. It lives as long as the instance.
	Backend() sandbox.Backend
	// Done is closed when the sandbox has ended, by itself or by Stop.
	Done() <-chan struct{}
	// Stop ends the sandbox and every process in it, and waits. It may be
	// called twice.
	Stop() error
}
