package daemon

import "github.com/controld/controld/sandboxhost"

// reload takes over what may change while the daemon runs.
func (d *Daemon) reload() {
	cfg := d.cfg
	if d.opts.Load != nil {
		loaded, err := d.opts.Load()
		if err == nil {
			err = loaded.Check()
		}
		if err != nil {
			d.log.Error().Err(err).Msg("reload: configuration kept as it was")
			return
		}
		cfg = loaded
	}
	if tokens, err := sandboxhost.LoadTokens(cfg.Tokens); err != nil {
		d.log.Error().Err(err).Msg("reload: tokens kept as they were")
	} else {
		d.host.SetTokens(tokens)
	}
	if of, err := cfg.tenantTiers(); err != nil {
		d.log.Error().Err(err).Msg("reload: tiers of tenants kept as they were")
	} else if err := d.host.SetTenantTiers(of); err != nil {
		d.log.Error().Err(err).Msg("reload: tiers of tenants kept as they were; a tier that is new needs a restart")
	}
	d.host.SetQuotas(cfg.quotas())
	d.gate.SetLimits(cfg.gateLimits())
	if d.audit != nil {
		d.audit.again()
	}
	if err := d.identity.load(cfg); err != nil {
		d.log.Error().Err(err).Msg("reload: certificates kept as they were")
	}
	d.log = newLogger(d.opts.Log, cfg.LogFormat, cfg.LogLevel)
	d.log.Info().Msg("reloaded")
}
