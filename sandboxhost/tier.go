package sandboxhost

import (
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"
)

// Tier is a way of making sandboxes.
type Tier struct {
	// Name is what a policy calls it; empty is the tier of whom no policy
	// speaks.
	Name   string
	Driver Driver
	// Box is what its sandboxes are made of.
	Box Box
	// IdleStop and MaxLife are as in [Config].
	IdleStop, MaxLife time.Duration
	// Pool is how many instances are kept ready, see [Host.FillPools].
	Pool int
}

var tierName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// CheckTierName tells whether a tier can be called so.
func CheckTierName(name string) error {
	if !tierName.MatchString(name) {
		return fmt.Errorf("tier %q: want [a-z0-9][a-z0-9-]{0,62}", name)
	}
	return nil
}

// tiers are the ways in which sandboxes are made, and whose are made how. It
// is the one place that knows.
type tiers struct {
	all    map[string]*Tier // by name
	others []Driver

	mu sync.Mutex
	of map[string]string // names by tenant
}

func newTiers(cfg Config) (*tiers, error) {
	t := &tiers{all: make(map[string]*Tier), others: cfg.Others}
	t.all[""] = &Tier{Driver: cfg.Driver, Box: cfg.Box, IdleStop: cfg.IdleStop, MaxLife: cfg.MaxLife, Pool: cfg.Pool}
	for _, tier := range cfg.Tiers {
		if err := CheckTierName(tier.Name); err != nil {
			return nil, err
		}
		if t.all[tier.Name] != nil {
			return nil, fmt.Errorf("tier %q: there are two", tier.Name)
		}
		t.all[tier.Name] = &tier
	}
	return t, t.setPolicy(cfg.TenantTiers)
}

// setPolicy replaces what says whose sandboxes are made how.
func (t *tiers) setPolicy(of map[string]string) error {
	for tenant, name := range of {
		if !tenantName.MatchString(tenant) {
			return fmt.Errorf("tenant %q: no tenant is called so", tenant)
		}
		if name == "" || t.all[name] == nil {
			return fmt.Errorf("tenant %q: there is no tier %q", tenant, name)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of = maps.Clone(of)
	return nil
}

// tier returns how the next sandbox of a tenant is made.
func (t *tiers) tier(tenant string) *Tier {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[t.of[tenant]]
}

// maker returns the tier of an instance of an earlier life of the host. Where
// that is no more it is one with the driver, and else as the tenant's is now;
// nil where no driver is called so.
func (t *tiers) maker(spec Spec) *Tier {
	if tier := t.all[spec.Tier]; tier != nil && tier.Driver.Name() == spec.Driver {
		return tier
	}
	for _, d := range t.drivers() {
		if d.Name() == spec.Driver {
			made := *t.tier(spec.Tenant)
			made.Name, made.Driver, made.Box = spec.Tier, d, spec.Box
			return &made
		}
	}
	return nil
}

// drivers are all that there are, those of whom no policy speaks first.
func (t *tiers) drivers() []Driver {
	all := append([]Driver{t.all[""].Driver}, t.others...)
	for name, tier := range t.all {
		if name != "" {
			all = append(all, tier.Driver)
		}
	}
	return all
}

// SetTenantTiers replaces [Config.TenantTiers]. It counts for the next life of
// each sandbox.
func (h *Host) SetTenantTiers(of map[string]string) error { return h.tiers.setPolicy(of) }
