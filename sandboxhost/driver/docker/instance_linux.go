package docker

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/cgroup"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// askTimeout bounds a question to the engine that nobody else bounds.
const askTimeout = 30 * time.Second

// instance is a container, held by its first process: the engine may come and
// go.
type instance struct {
	driver   *Driver
	spec     sandboxhost.Spec
	first    *launch.Process
	group    cgroup.Group
	oom      *cgroup.OOM
	once     sync.Once // of Stop
	stopping atomic.Bool
	stopped  error
	done     chan struct{}
	death    sandboxhost.Death
}

func newInstance(d *Driver, spec sandboxhost.Spec, first *launch.Process) *instance {
	group := cgroup.Of(first.PID())
	i := &instance{driver: d, spec: spec, first: first, group: group, oom: cgroup.NewOOM(group), done: make(chan struct{})}
	go i.watch()
	return i
}

// watch ends with the sandbox.
func (i *instance) watch() {
	defer close(i.done)
	i.first.Wait()
	if i.stopping.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	i.death.OutOfMemory = i.oom.Since() > 0
	is, err := i.driver.engine.ContainerInspect(ctx, name(i.spec), client.ContainerInspectOptions{})
	if err != nil {
		i.death.Detail = err.Error()
		return
	}
	if !i.oom.Ever() { // perhaps the group is gone; the engine knows of any process
		i.death.OutOfMemory = is.Container.State.OOMKilled
	}
	i.death.Detail = fmt.Sprintf("exit status %d: %s", is.Container.State.ExitCode, i.driver.lastWords(ctx, i.spec))
}

// OOMKills implements [sandboxhost.OOMCounter].
func (i *instance) OOMKills() int64 { return i.oom.Kills() }

// Link implements [sandboxhost.Instance].
func (i *instance) Link() sandboxhost.Link {
	return sandboxhost.Link{
		Dial:  func(ctx context.Context) (net.Conn, error) { return launch.Dial(ctx, i.spec.Run) },
		Files: true,
	}
}

// Done implements [sandboxhost.Instance].
func (i *instance) Done() <-chan struct{} { return i.done }

// Death implements [sandboxhost.Instance].
func (i *instance) Death() sandboxhost.Death { return i.death }

// Stop implements [sandboxhost.Instance].
func (i *instance) Stop() error {
	i.once.Do(func() {
		i.stopping.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		if i.stopped = i.driver.remove(ctx, i.spec); i.stopped == nil {
			<-i.done
			i.first.Close()
		}
	})
	return i.stopped
}

// Stats implements [sandboxhost.Instance].
func (i *instance) Stats(context.Context) (sandboxhost.Stats, error) {
	s, err := i.group.Stats()
	return sandboxhost.Stats{CPU: s.CPU, Memory: s.Memory, Processes: s.Processes}, err
}

// Pause implements [sandboxhost.Instance].
func (i *instance) Pause(ctx context.Context) error { return i.driver.pause(ctx, i.spec) }

// Resume implements [sandboxhost.Instance].
func (i *instance) Resume(ctx context.Context) error { return i.driver.resume(ctx, i.spec) }

func (d *Driver) pause(ctx context.Context, spec sandboxhost.Spec) error {
	_, err := d.engine.ContainerPause(ctx, name(spec), client.ContainerPauseOptions{})
	return err
}

func (d *Driver) resume(ctx context.Context, spec sandboxhost.Spec) error {
	_, err := d.engine.ContainerUnpause(ctx, name(spec), client.ContainerUnpauseOptions{})
	return err
}
