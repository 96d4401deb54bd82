package daemon

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/host"
)

// drivers returns the driver that starts sandboxes as a configuration says, and
// the others, whose sandboxes an earlier daemon may have left running.
func (d *Daemon) drivers(cfg Config) (chosen sandboxhost.Driver, others []sandboxhost.Driver, err error) {
	isolating, err := d.isolating(cfg)
	if err != nil {
		return nil, nil, err
	}
	own := host.Driver{
		Cgroups: local.Cgroups(cfg.Cgroups), Keeper: d.keeper,
		Each: local.Each{Memory: cfg.ExecMemory, Processes: cfg.ExecProcesses},
	}
	if err := d.checkEach(own); err != nil {
		return nil, nil, err
	}
	for _, driver := range append(isolating, own) {
		if driver.Name() == cfg.Driver {
			chosen = driver
		} else {
			others = append(others, driver)
		}
	}
	return chosen, others, nil
}

// checkEach proves that the limits of commands hold, where there are any.
func (d *Daemon) checkEach(driver host.Driver) error {
	if driver.Each == (local.Each{}) {
		return nil
	}
	dir := filepath.Join(d.cfg.StateDir, "check")
	defer os.RemoveAll(dir)
	if err := driver.Check(dir); err != nil {
		return fmt.Errorf("exec-memory, exec-processes: %w", err)
	}
	return nil
}

// sandboxEnded tells of a sandbox that has ended.
func (d *Daemon) sandboxEnded(spec sandboxhost.Spec, death sandboxhost.Death, left error) {
	e := d.log.Info()
	switch {
	case left != nil:
		e = d.log.Error().Err(left)
	case death != (sandboxhost.Death{}):
		e = d.log.Warn()
	}
	e.Str("tenant", spec.Tenant).Str("sandbox", spec.Sandbox).Str("instance", spec.ID).
		Str("reason", death.Reason()).Str("detail", death.Detail).Msg("a sandbox has ended")
}

// poolFailed tells of a pool that is not full.
func (d *Daemon) poolFailed(tier string, err error) {
	d.log.Warn().Str("tier", tier).Err(err).Msg("a sandbox could not be kept ready")
}
