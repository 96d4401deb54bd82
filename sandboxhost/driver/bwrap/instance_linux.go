package bwrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// instance is a sandbox that bubblewrap made: the first process of its pid
// namespace, with which all others end.
type instance struct {
	run      string
	first    *launch.Process
	monitor  *exec.Cmd // bubblewrap itself; nil where another life of the host started it
	once     sync.Once // of Stop
	stopping atomic.Bool
	stopped  error
	done     chan struct{}
	death    sandboxhost.Death
}

func newInstance(spec sandboxhost.Spec, first *launch.Process, monitor *exec.Cmd) *instance {
	i := &instance{run: spec.Run, first: first, monitor: monitor, done: make(chan struct{})}
	go i.watch()
	return i
}

// errExited says how a sandbox ended of which no more is known.
var errExited = errors.New("it exited")

// watch ends with the sandbox.
func (i *instance) watch() {
	defer close(i.done)
	err := i.first.Wait()
	if i.monitor != nil {
		err = i.monitor.Wait()
	}
	if i.stopping.Load() {
		return
	}
	i.death.Detail = fmt.Sprintf("%v: %s", cmp.Or(err, errExited), strings.TrimSpace(launch.LastWords(i.run)))
}

// Link implements [sandboxhost.Instance].
func (i *instance) Link() sandboxhost.Link {
	return sandboxhost.Link{
		Dial:  func(ctx context.Context) (net.Conn, error) { return launch.Dial(ctx, i.run) },
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
		if i.stopped = i.first.Kill(); i.stopped == nil {
			if i.monitor != nil {
				i.monitor.Process.Signal(syscall.SIGCONT) // somebody may have stopped it as well
			}
			<-i.done
			i.first.Close()
		}
	})
	return i.stopped
}

// Stats implements [sandboxhost.Instance].
func (i *instance) Stats(context.Context) (sandboxhost.Stats, error) {
	return sandboxhost.Stats{}, unsupported("stats")
}

// Pause implements [sandboxhost.Instance].
func (i *instance) Pause(context.Context) error { return unsupported("pause") }

// Resume implements [sandboxhost.Instance].
func (i *instance) Resume(context.Context) error { return unsupported("resume") }

func unsupported(op string) error {
	return sandboxhost.Unsupported(op, "the bwrap driver keeps no account of a sandbox")
}
