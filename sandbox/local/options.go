package local

import "github.com/controld/controld/sandbox"

// Cgroups tells whether process trees are held by cgroups.
type Cgroups string

// The ways to hold process trees.
const (
	// CgroupsAuto uses cgroup v2, pure or beside version 1, where it works.
	CgroupsAuto Cgroups = "auto"
	// CgroupsOff makes this process, and its keeper where it has one, the
	// subreaper of its descendants, for its whole life, and walks /proc.
	CgroupsOff Cgroups = "off"
)

// Options describe a local sandbox.
type Options struct {
	// DefaultCwd is where relative paths and commands start. It is made
	// (0755) where it is missing.
	DefaultCwd string
	// StateDir is where is written down, before it is made, what has to go
	// if this process dies: see Sweep. It is made (0700) where it is missing,
	// and no command should reach it. Empty means that nothing is written
	// down: what a killed process leaves of its writes stays.
	StateDir string
	// Cgroups is CgroupsAuto where empty.
	Cgroups Cgroups
	// Each bounds the processes of each command; [New] fails where cgroups
	// cannot hold it.
	Each Each
	// Keeper, where not nil, ends all processes when this one dies without
	// closing the sandbox, and starts them where there are no cgroups. The
	// caller closes it after the sandbox.
	Keeper *Keeper
	// User, where not nil, is who commands run as; Keeper is nil then. What this
	// process needs for that is said in package proctree. As whom it reaches
	// files is not said here: all its threads have to be that user.
	User *User
	// Limits are the defaults of the protocol where zero.
	Limits sandbox.Limits
	// Tenant and Sandbox are names for Info.
	Tenant, Sandbox string
	// Epoch names this life of the sandbox; a new UUID where empty.
	Epoch string
}

// Each bounds one command with all its processes. Zero means no bound.
type Each struct {
	// Memory in bytes, swap included. A command over it is killed whole and
	// its result says oom_killed.
	Memory int64
	// Processes and threads at once; a fork beyond fails.
	Processes int64
}
