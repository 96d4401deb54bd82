package work

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/sandbox"
)

// State is where a command stands.
type State string

// The states of a command.
const (
	Starting State = "starting"
	Running  State = "running"
	Ended    State = "ended"
)

// Owner is whom a command belongs to.
type Owner struct{ Tenant, Sandbox string }

// ExecsConfig bounds a registry. Zero fields take the defaults.
type ExecsConfig struct {
	// Kept is how long a command that has ended is still known (10 min),
	// MaxKept how many of a tenant are (256).
	Kept    time.Duration
	MaxKept int
}

// Execs is the registry of a daemon's commands: those that run and those that
// have ended not long ago. Each is a task of its own.
type Execs struct {
	cfg ExecsConfig

	mu      sync.Mutex
	by      map[string]*Exec
	tenants map[string]*[]*Exec // those that have ended, oldest first
}

// NewExecs returns an empty registry.
func NewExecs(cfg ExecsConfig) *Execs {
	if cfg.Kept <= 0 {
		cfg.Kept = 10 * time.Minute
	}
	if cfg.MaxKept <= 0 {
		cfg.MaxKept = 256
	}
	return &Execs{cfg: cfg, by: make(map[string]*Exec), tenants: make(map[string]*[]*Exec)}
}

// Exec is one command.
type Exec struct {
	*Task
	// ID is a UUID.
	ID    string
	Owner Owner
	of    *Execs

	mu     sync.Mutex
	report Report
}

// Report says how a command stands.
type Report struct {
	State State
	// Began is when it was asked for, Ended when it ended.
	Began, Ended time.Time
	// Result and Err are set in the end. The output is not kept here.
	Result sandbox.ShellResult
	Err    error
}

// Report returns how the command stands.
func (e *Exec) Report() Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.report
}

// Register makes a task known as a command. The caller calls its Run.
func (x *Execs) Register(owner Owner, task *Task) *Exec {
	e := &Exec{Task: task, ID: uuid.NewString(), Owner: owner, of: x, report: Report{State: Starting, Began: time.Now()}}
	x.mu.Lock()
	x.by[e.ID] = e
	x.mu.Unlock()
	return e
}

// Run runs the command by run, once, and returns when it has ended. run calls
// begun when all that is left is to wait.
func (e *Exec) Run(run func(ctx context.Context, begun func()) (sandbox.ShellResult, error)) {
	e.Task.Run(func(ctx context.Context) {
		result, err := run(ctx, e.begun)
		e.of.ended(e, result, err)
	})
}

func (e *Exec) begun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report.State = Running
}

// ended keeps how a command ended, and forgets older ones.
func (x *Execs) ended(e *Exec, result sandbox.ShellResult, err error) {
	result.Stdout, result.Stderr = nil, nil
	now := time.Now()
	e.mu.Lock()
	e.report.State, e.report.Ended = Ended, now
	e.report.Result, e.report.Err = result, err
	e.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := x.tenants[e.Owner.Tenant]
	if kept == nil {
		kept = new([]*Exec)
		x.tenants[e.Owner.Tenant] = kept
	}
	*kept = append(*kept, e)
	x.prune(kept, now)
}

// prune forgets what is too old or too much; the caller holds the lock.
func (x *Execs) prune(kept *[]*Exec, now time.Time) {
	list := *kept
	for len(list) > 0 && (len(list) > x.cfg.MaxKept || now.Sub(list[0].Report().Ended) > x.cfg.Kept) {
		delete(x.by, list[0].ID)
		list[0] = nil
		list = list[1:]
	}
	*kept = list
}

// Find returns a command of that owner, nil where there is none.
func (x *Execs) Find(owner Owner, id string) *Exec {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pruneTenant(owner.Tenant)
	e := x.by[id]
	if e == nil || e.Owner != owner {
		return nil
	}
	return e
}

// List returns the commands of an owner, in no order.
func (x *Execs) List(owner Owner) []*Exec {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pruneTenant(owner.Tenant)
	var out []*Exec
	for _, e := range x.by {
		if e.Owner == owner {
			out = append(out, e)
		}
	}
	return out
}

func (x *Execs) pruneTenant(tenant string) {
	if kept := x.tenants[tenant]; kept != nil {
		x.prune(kept, time.Now())
	}
}
