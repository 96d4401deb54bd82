package daemon

import (
	"fmt"
	"path/filepath"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/bwrap"
	"github.com/controld/controld/sandboxhost/driver/docker"
	"github.com/controld/controld/sandboxhost/driver/host"
	"github.com/controld/controld/sandboxhost/driver/image"
	"github.com/controld/controld/sandboxhost/driver/launch"
	"github.com/controld/controld/sandboxhost/driver/oci"
)

// driverNames are the kinds of isolation there are.
var driverNames = []string{bwrap.Name, oci.Name, docker.Name, host.Name}

// shared is what the drivers of all tiers have together.
type shared struct {
	images *image.Store
	agent  launch.Agent
}

// isolating returns the drivers that start an agent elsewhere.
func (d *Daemon) isolating(cfg Config) ([]sandboxhost.Driver, error) {
	var agent launch.Agent
	if cfg.Driver != host.Name {
		var err error
		if agent, err = d.sealAgent(); err != nil {
			return nil, err
		}
	}
	images, err := d.imageStore()
	if err != nil {
		return nil, err
	}
	all := []sandboxhost.Driver{
		bwrap.Driver{Agent: agent},
		oci.Driver{Runtime: cfg.Runtime, CgroupParent: cfg.CgroupParent, Agent: agent, Images: images},
	}
	engine, err := docker.New(docker.Options{Engine: cfg.Engine, CgroupParent: cfg.CgroupParent, Agent: agent})
	switch {
	case err == nil:
		d.ends = append(d.ends, engine.Close)
		all = append(all, engine)
	case cfg.Driver == docker.Name:
		return nil, err
	}
	return all, nil
}

// imageStore opens the one store of images that all tiers share.
func (d *Daemon) imageStore() (*image.Store, error) {
	if d.shared.images != nil {
		return d.shared.images, nil
	}
	s, err := image.NewStore(filepath.Join(d.cfg.StateDir, "images"), 0)
	if err != nil {
		return nil, err
	}
	d.shared.images = s
	d.ends = append(d.ends, s.Close)
	return s, nil
}

// sealAgent keeps a copy of the agent's program for the sandboxes, the same for
// all tiers.
func (d *Daemon) sealAgent() (launch.Agent, error) {
	if d.shared.agent.Path != "" {
		return d.shared.agent, nil
	}
	program, args := d.cfg.Agent, []string(nil)
	if program == "" && len(d.opts.Agent) > 0 {
		program, args = d.opts.Agent[0], d.opts.Agent[1:]
	}
	if program == "" {
		return launch.Agent{}, fmt.Errorf("agent: no program; say --agent FILE")
	}
	var err error
	d.shared.agent, err = launch.Seal(filepath.Join(d.cfg.StateDir, "agent"), program, args...)
	return d.shared.agent, err
}
