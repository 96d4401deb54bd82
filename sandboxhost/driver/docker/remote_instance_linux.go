package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/controld/controld/sandboxhost"
)

// remoteInstance is a container of an engine elsewhere.
type remoteInstance struct {
	remote   remote
	spec     sandboxhost.Spec
	once     sync.Once // of Stop
	stopping atomic.Bool
	stopped  error
	done     chan struct{}
	death    sandboxhost.Death
	watching context.Context
	unwatch  context.CancelFunc
}

func newRemoteInstance(r remote, spec sandboxhost.Spec) *remoteInstance {
	i := &remoteInstance{remote: r, spec: spec, done: make(chan struct{})}
	i.watching, i.unwatch = context.WithCancel(context.Background())
	go i.watch()
	return i
}

// askAgain is how long an engine that does not answer is left alone.
const askAgain = time.Second

// watch ends with the sandbox. An engine that cannot be asked for a while says
// nothing of it.
func (i *remoteInstance) watch() {
	defer close(i.done)
	defer i.unwatch()
	for !i.ended() {
		select {
		case <-time.After(askAgain):
		case <-i.watching.Done():
			return
		}
	}
	if !i.stopping.Load() {
		i.death = i.reason()
	}
}

// ended waits for the end for as long as the engine answers, and tells whether
// that has come.
func (i *remoteInstance) ended() bool {
	wait := i.remote.engine.ContainerWait(i.watching, name(i.spec), client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-wait.Result:
		return true
	case err := <-wait.Error:
		return errdefs.IsNotFound(err)
	}
}

// reason asks the engine why the container ended.
func (i *remoteInstance) reason() sandboxhost.Death {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	is, err := i.remote.engine.ContainerInspect(ctx, name(i.spec), client.ContainerInspectOptions{})
	if err != nil {
		return sandboxhost.Death{Detail: err.Error()}
	}
	return sandboxhost.Death{OutOfMemory: is.Container.State.OOMKilled,
		Detail: fmt.Sprintf("exit status %d: %s", is.Container.State.ExitCode, i.remote.lastWords(ctx, i.spec))}
}

// Link implements [sandboxhost.Instance]. Each connection is a process there, so
// there is one.
func (i *remoteInstance) Link() sandboxhost.Link {
	return sandboxhost.Link{
		Dial:     func(ctx context.Context) (net.Conn, error) { return i.remote.dial(ctx, name(i.spec)) },
		MaxConns: 1,
	}
}

// Done implements [sandboxhost.Instance].
func (i *remoteInstance) Done() <-chan struct{} { return i.done }

// Death implements [sandboxhost.Instance].
func (i *remoteInstance) Death() sandboxhost.Death { return i.death }

// Stop implements [sandboxhost.Instance].
func (i *remoteInstance) Stop() error {
	i.once.Do(func() {
		i.stopping.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		if i.stopped = i.remote.remove(ctx, i.spec); i.stopped == nil {
			i.unwatch()
			<-i.done
		}
	})
	return i.stopped
}

// Stats implements [sandboxhost.Instance].
func (i *remoteInstance) Stats(ctx context.Context) (sandboxhost.Stats, error) {
	got, err := i.remote.engine.ContainerStats(ctx, name(i.spec), client.ContainerStatsOptions{})
	if err != nil {
		return sandboxhost.Stats{}, err
	}
	defer got.Body.Close()
	var is container.StatsResponse
	if err := json.NewDecoder(got.Body).Decode(&is); err != nil {
		return sandboxhost.Stats{}, err
	}
	return sandboxhost.Stats{
		CPU: time.Duration(is.CPUStats.CPUUsage.TotalUsage), Memory: int64(is.MemoryStats.Usage), Processes: int64(is.PidsStats.Current),
	}, nil
}

// Pause implements [sandboxhost.Instance].
func (i *remoteInstance) Pause(ctx context.Context) error { return i.remote.pause(ctx, i.spec) }

// Resume implements [sandboxhost.Instance].
func (i *remoteInstance) Resume(ctx context.Context) error { return i.remote.resume(ctx, i.spec) }
