package server

import (
	"sync"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// exec runs a command. Its output is charged while it grows; what does not
// fit into the tenant's budget is left out and counted.
func (cl *call) exec(p *rpc.ExecParams) (rpc.Result, error) {
	opts := p.Options
	if most := cl.c.peer.limits.MaxOutputBytes; !opts.MaxOutputBytes.Known {
		opts.MaxOutputBytes = sandbox.Some(most)
	} else if opts.MaxOutputBytes.Value > most {
		return nil, &sandbox.Error{Kind: sandbox.KindInvalidParams, Limit: sandbox.Some(most),
			Message: "max_output_bytes is above the limit"}
	}
	shell, err := cl.runShell(p.Command, opts)
	if err != nil {
		return nil, err
	}
	p.Options.Stdin = nil
	cl.fit(&shell)
	return &rpc.ExecResult{Shell: shell}, nil
}

// runShell calls the backend and charges what it says it keeps.
func (cl *call) runShell(command string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	meter := outputMeter{budget: cl.c.peer.budget}
	defer func() { cl.held += meter.stop() }()
	opts.Grow = meter.grow
	cl.begun()
	return cl.backend().Exec(cl.ctx, command, opts)
}

// outputMeter takes the budget for output while a command runs.
type outputMeter struct {
	budget  *budget
	mu      sync.Mutex
	taken   int64
	stopped bool
}

func (m *outputMeter) grow(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped || !m.budget.grab(int64(n)) {
		return false
	}
	m.taken += int64(n)
	return true
}

func (m *outputMeter) stop() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	return m.taken
}

// fit makes what the call holds of the budget that of its output, cutting the
// output of a backend that did not ask while it grew.
func (cl *call) fit(shell *sandbox.ShellResult) {
	want := int64(len(shell.Stdout) + len(shell.Stderr))
	if short := want - cl.held; short > 0 {
		cl.held += cl.c.peer.budget.grabUpTo(short)
	}
	if over := want - cl.held; over > 0 {
		out := min(over, int64(len(shell.Stdout)))
		shell.Stdout = cut(shell.Stdout, out)
		shell.StdoutOmitted += out
		shell.Stderr = cut(shell.Stderr, over-out)
		shell.StderrOmitted += over - out
	}
	cl.giveBack(int64(len(shell.Stdout) + len(shell.Stderr)))
}

// cut leaves n bytes out of the middle.
func cut(b []byte, n int64) []byte {
	if n == 0 {
		return b
	}
	keep := len(b) - int(n)
	out := make([]byte, 0, keep)
	out = append(out, b[:(keep+1)/2]...)
	return append(out, b[len(b)-keep/2:]...)
}
