//go:build !linux

package daemon

import (
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/host"
)

// driverNames are the kinds of isolation there are.
var driverNames = []string{host.Name}

// shared is what the drivers of all tiers have together.
type shared struct{}

// isolating returns the drivers that start an agent elsewhere.
func (d *Daemon) isolating(Config) ([]sandboxhost.Driver, error) { return nil, nil }
