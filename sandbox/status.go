package sandbox

import "time"

// State tells whether a sandbox runs.
type State string

// The states of a sandbox.
const (
	StateRunning  State = "running"
	StateStarting State = "starting"
	// StatePaused: it runs, and its processes do not go on.
	StatePaused State = "paused"
	// StateStopped: it does not run, and its files are there.
	StateStopped State = "stopped"
)

// Status tells of a sandbox how it is, seen from outside, see [CapSandboxes].
// What is not known is not there.
type Status struct {
	Sandbox string
	State   State
	// Driver names the kind of isolation.
	Driver string
	// Tier names the way of making sandboxes of which it is, empty for the one
	// without a name.
	Tier string
	// Instance is a UUID of this one life, Epoch what [Info] calls it. Both
	// are empty where it does not run.
	Instance, Epoch string
	// Started is when this life began, Ends when it will be stopped, used or
	// not; unknown where nothing bounds it.
	Started, Ends Optional[time.Time]
	// IdleStop is how long it lives unused; 0 is without a bound.
	IdleStop time.Duration
	// CPU is the time on processors since the start, Memory in bytes and
	// Processes are those of now. Not every driver keeps an account.
	CPU               Optional[time.Duration]
	Memory, Processes Optional[int64]
}
