//go:build linux

package local

import "github.com/controld/controld/sandbox/local/proctree"

// Keeper is a process beside this one that outlives it for as long as it takes
// to end the commands of any number of sandboxes: see [Options].
type Keeper = proctree.Keeper

// NewKeeper returns a keeper whose process runs the program at path with these
// arguments, its name among them: that program does nothing but call [Keep] at
// the start of main. The caller closes the keeper after its sandboxes.
func NewKeeper(path string, args ...string) *Keeper { return proctree.NewKeeper(path, args...) }

// Keep is all that a keeper's process does. It returns when the process that
// started it has closed the keeper or died, and nothing is left of what it
// started, with an exit code.
func Keep() int { return proctree.Keep() }
