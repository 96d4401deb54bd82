//go:build tools

// Package gvisor pins the runsc that the tests of drivers use. It is a module of
// its own, so that nothing else depends on it.
package gvisor

import _ "gvisor.dev/gvisor/runsc"
