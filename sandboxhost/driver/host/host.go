// Package host is the driver for development: a sandbox is a directory of the
// machine and its commands are the machine's processes. It isolates nothing.
package host

import (
	"context"
	"sync"

	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost"
)

// Name is the driver's name.
const Name = "host"

// Driver starts sandboxes in the daemon's own process.
type Driver struct {
	// Cgroups says how process trees are held, see package local.
	Cgroups local.Cgroups
	// Each bounds each command.
	Each local.Each
	// Keeper ends the commands of all sandboxes when this process dies; nil:
	// nothing does.
	Keeper *local.Keeper
}

var _ sandboxhost.Driver = Driver{}

// Name implements [sandboxhost.Driver].
func (Driver) Name() string { return Name }

// Check proves that commands can be started as the driver is told to: it has a
// sandbox in dir for a moment.
func (d Driver) Check(dir string) error {
	sb, err := local.New(local.Options{DefaultCwd: dir, Cgroups: d.Cgroups, Each: d.Each})
	if err != nil {
		return err
	}
	return sb.Close()
}

// Start implements [sandboxhost.Driver].
func (d Driver) Start(_ context.Context, spec sandboxhost.Spec) (sandboxhost.Instance, error) {
	if spec.Box != (sandboxhost.Box{}) {
		return nil, unsupported("start")
	}
	sb, err := local.New(local.Options{
		DefaultCwd: spec.Dir,
		StateDir:   spec.Journal,
		Cgroups:    d.Cgroups,
		Each:       d.Each,
		Keeper:     d.Keeper,
		Limits:     spec.Limits,
		Tenant:     spec.Tenant,
		Sandbox:    spec.Sandbox,
		Epoch:      spec.Epoch,
	})
	if err != nil {
		return nil, err
	}
	return &instance{sandbox: sb, done: make(chan struct{})}, nil
}

type instance struct {
	sandbox *local.Sandbox
	once    sync.Once
	done    chan struct{}
	err     error
}

// Adopt implements [sandboxhost.Driver]: a sandbox ends with its daemon. What
// it left is swept by its journal, see [local.Sweep].
func (Driver) Adopt(context.Context, sandboxhost.Spec) (sandboxhost.Instance, error) {
	return nil, sandboxhost.ErrGone
}

// Link implements [sandboxhost.Instance].
func (i *instance) Link() sandboxhost.Link { return sandboxhost.Link{Backend: i.sandbox} }

// Death implements [sandboxhost.Instance]: it ends by Stop alone.
func (i *instance) Death() sandboxhost.Death { return sandboxhost.Death{} }

// Stats implements [sandboxhost.Instance].
func (i *instance) Stats(context.Context) (sandboxhost.Stats, error) {
	return sandboxhost.Stats{}, unsupported("stats")
}

// Pause implements [sandboxhost.Instance].
func (i *instance) Pause(context.Context) error { return unsupported("pause") }

// Resume implements [sandboxhost.Instance].
func (i *instance) Resume(context.Context) error { return unsupported("resume") }

func unsupported(op string) error {
	return sandboxhost.Unsupported(op, "the host driver knows no bounds around a sandbox")
}

// Done implements [sandboxhost.Instance].
func (i *instance) Done() <-chan struct{} { return i.done }

// Stop implements [sandboxhost.Instance].
func (i *instance) Stop() error {
	i.once.Do(func() {
		i.err = i.sandbox.Close()
		close(i.done)
	})
	return i.err
}
