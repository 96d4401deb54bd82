//go:build !linux

package main

import "runtime"

// machine looks at what drivers and the daemon rest on.
func machine() []finding {
	return []finding{{Check: "kernel", Says: runtime.GOOS, Hint: "sandboxes need Linux"}}
}
