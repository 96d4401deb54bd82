package sandboxhost

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// stuckAfter is how much later than its timeout a command has answered, or its
// sandbox is stuck.
const stuckAfter = 2 * time.Second

// unasked is longer than any link lasts.
const unasked = 100 * 365 * 24 * time.Hour

// exitKilled is the exit code of what SIGKILL ended, and of a shell that says so
// of its last command.
const exitKilled = 128 + 9

// linked is a sandbox behind its agent. What the agent says is believed of
// nothing but its own sandbox: package rpc checks names, this one times.
type linked struct {
	*adapter.Sandbox
	spec     Spec
	instance Instance
	calls    sync.WaitGroup // that nobody waits for any more
}

// openLink returns the backend of an instance and how to end it, which does not
// end the sandbox.
func openLink(spec Spec, i Instance) (sandbox.Backend, func() error, error) {
	way := i.Link()
	if way.Backend != nil {
		return way.Backend, func() error { return nil }, nil
	}
	a, err := adapter.New(adapter.Options{
		// Names only: whatever address an agent tells, Dial is the way to it.
		Control: "unix:///agent", Data: []string{"unix:///agent"},
		// A key of this process's own would let a command outlive it for a while.
		NoKeys: true,
		Token:  spec.Secret, Client: "controld-host/1", Mux: way.MaxConns == 1, PassFiles: way.Files,
		Conn: rpc.ConnOptions{
			// An agent may allow itself more than the host has room for.
			MostMessageBytes: max(spec.Limits.MaxMessageBytes, sandbox.DefaultLimits().MaxMessageBytes),
			// Whether it answers is seen to by Health, which knows of pauses.
			PingInterval: unasked,
		},
		Dial: func(ctx context.Context, _ dataport.Endpoint) (net.Conn, error) { return way.Dial(ctx) },
	})
	if err != nil {
		return nil, nil, err
	}
	l := &linked{Sandbox: a, spec: spec, instance: i}
	return l, l.Close, nil
}

// Close ends the link and waits for what is left on it.
func (l *linked) Close() error {
	err := l.Sandbox.Close()
	l.calls.Wait()
	return err
}

// Info implements [sandbox.Backend]. An agent does not know whose it is.
func (l *linked) Info(ctx context.Context) (sandbox.Info, error) {
	info, err := l.Sandbox.Info(ctx)
	info.Tenant, info.Sandbox, info.Epoch = l.spec.Tenant, l.spec.Sandbox, l.spec.Epoch
	return info, err
}

// Exec implements [sandbox.API]. That a command was killed since the sandbox had
// no more memory only the host can see.
func (l *linked) Exec(ctx context.Context, command string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	before := l.oomKills()
	r, err := l.timed(ctx, command, opts)
	if err == nil && r.ExitCode == exitKilled && l.oomKills() > before {
		r.Reason = sandbox.ReasonOOMKilled
	}
	return r, err
}

func (l *linked) oomKills() int64 {
	if c, ok := l.instance.(OOMCounter); ok {
		return c.OOMKills()
	}
	return 0
}

// timed runs a command. An agent that does not answer in time holds nobody up,
// not even for the time that a cancel is given.
func (l *linked) timed(ctx context.Context, command string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	if opts.Timeout <= 0 {
		return l.Sandbox.Exec(ctx, command, opts)
	}
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		result sandbox.ShellResult
		err    error
	}
	answered := make(chan answer, 1)
	l.calls.Go(func() {
		r, err := l.Sandbox.Exec(ctx, command, opts)
		answered <- answer{r, err}
	})
	timer := time.NewTimer(opts.Timeout + opts.KillGrace.Value + stuckAfter)
	defer timer.Stop()
	defer cancel()
	select {
	case a := <-answered:
		return a.result, a.err
	case <-timer.C:
		return sandbox.ShellResult{}, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "exec", Reason: sandbox.ReasonSandboxStuck,
			Outcome: sandbox.OutcomeUnknown, Message: "the sandbox did not answer in time"}
	}
}
