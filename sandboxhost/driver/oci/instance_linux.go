package oci

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	runc "github.com/containerd/go-runc"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/cgroup"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// instance is a container: its first process, with which all others end, and
// its cgroup.
type instance struct {
	driver   Driver
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

func newInstance(d Driver, spec sandboxhost.Spec, first *launch.Process) *instance {
	group := cgroup.Group(d.cgroup(spec))
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
	i.death = sandboxhost.Death{OutOfMemory: i.oom.Since() > 0, Detail: "it exited: " + strings.TrimSpace(launch.LastWords(i.spec.Run))}
}

// OOMKills implements [sandboxhost.OOMCounter].
func (i *instance) OOMKills() int64 { return i.oom.Kills() }

// Link implements [sandboxhost.Instance].
func (i *instance) Link() sandboxhost.Link {
	return sandboxhost.Link{
		Dial:  func(ctx context.Context) (net.Conn, error) { return launch.Dial(ctx, i.spec.Run) },
		Files: i.driver.handsOver(),
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
		if i.stopped = i.first.Kill(); i.stopped != nil {
			return
		}
		// Killed it ends even when it is frozen only once it thaws.
		i.group.Thaw()
		<-i.done
		i.first.Close()
		i.stopped = i.driver.remove(context.Background(), i.spec)
	})
	return i.stopped
}

// Stats implements [sandboxhost.Instance].
func (i *instance) Stats(context.Context) (sandboxhost.Stats, error) {
	s, err := i.group.Stats()
	return sandboxhost.Stats{CPU: s.CPU, Memory: s.Memory, Processes: s.Processes}, err
}

// Pause implements [sandboxhost.Instance].
func (i *instance) Pause(ctx context.Context) error {
	return i.driver.with(i.spec, func(r *runc.Runc) error { return r.Pause(ctx, i.spec.ID) })
}

// Resume implements [sandboxhost.Instance].
func (i *instance) Resume(ctx context.Context) error {
	return i.driver.with(i.spec, func(r *runc.Runc) error { return r.Resume(ctx, i.spec.ID) })
}
