package daemon

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/controld/controld/sandboxhost"
)

// tierKeys set what a tier has of its own, by their names in [Config.Tiers].
var tierKeys = map[string]func(c *Config, value string) error{
	"driver":    func(c *Config, v string) error { c.Driver = v; return nil },
	"runtime":   func(c *Config, v string) error { c.Runtime = v; return nil },
	"engine":    func(c *Config, v string) error { c.Engine = v; return nil },
	"image":     func(c *Config, v string) error { c.Image = v; return nil },
	"network":   func(c *Config, v string) error { c.Network = v; return nil },
	"memory":    func(c *Config, v string) error { return set(&c.SandboxMemory, v, parseBytes) },
	"processes": func(c *Config, v string) error { return set(&c.SandboxProcesses, v, parseCount) },
	"cpus":      func(c *Config, v string) error { return set(&c.SandboxCPUs, v, parseShare) },
	"idle-stop": func(c *Config, v string) error { return set(&c.IdleStop, v, time.ParseDuration) },
	"max-life":  func(c *Config, v string) error { return set(&c.MaxLife, v, time.ParseDuration) },
	"pool":      func(c *Config, v string) error { return set(&c.Pool, v, strconv.Atoi) },
}

func set[T any](field *T, value string, parse func(string) (T, error)) error {
	v, err := parse(value)
	if err != nil {
		return fmt.Errorf("%q: %w", value, err)
	}
	*field = v
	return nil
}

func parseBytes(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err == nil && n > math.MaxInt64 {
		err = strconv.ErrRange
	}
	return int64(n), err
}

func parseCount(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

func parseShare(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

// tier is a [Config] as it is for the sandboxes of a tier.
type tier struct {
	name string
	Config
}

// tiers are those of [Config.Tiers], in their order.
func (c Config) tiers() ([]tier, error) {
	var all []tier
	for _, text := range c.Tiers {
		t, err := c.tier(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(other tier) bool { return other.name == t.name }) {
			return nil, fmt.Errorf("tier %s: it stands twice", t.name)
		}
		all = append(all, t)
	}
	return all, nil
}

// tier reads NAME=KEY:VALUE,KEY:VALUE. What is not named there is as everywhere.
func (c Config) tier(text string) (tier, error) {
	name, rest, ok := strings.Cut(text, "=")
	if err := sandboxhost.CheckTierName(name); err != nil {
		return tier{}, err
	}
	if !ok || rest == "" {
		return tier{}, fmt.Errorf("tier %s: want NAME=KEY:VALUE,KEY:VALUE", name)
	}
	t := tier{name: name, Config: c}
	t.Config.Tiers, t.TenantTiers = nil, nil
	seen := make(map[string]bool)
	for pair := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(pair, ":")
		set := tierKeys[key]
		switch {
		case !ok:
			return tier{}, fmt.Errorf("tier %s: %q is no KEY:VALUE", name, pair)
		case set == nil:
			return tier{}, fmt.Errorf("tier %s: unknown key %q; there is %s", name, key, strings.Join(slices.Sorted(maps.Keys(tierKeys)), ", "))
		case seen[key]:
			return tier{}, fmt.Errorf("tier %s: key %q stands twice", name, key)
		}
		seen[key] = true
		if err := set(&t.Config, value); err != nil {
			return tier{}, fmt.Errorf("tier %s: %s: %w", name, key, err)
		}
	}
	return t, nil
}

// checkTiers wants each tier to be one, and tenants to be of one that there is.
func (c Config) checkTiers() error {
	all, err := c.tiers()
	if err != nil {
		return err
	}
	for _, t := range all {
		for _, err := range []error{t.checkDriver(), t.checkNumbers()} {
			if err != nil {
				return fmt.Errorf("tier %s: %w", t.name, err)
			}
		}
	}
	of, err := c.tenantTiers()
	if err != nil {
		return err
	}
	for tenant, name := range of {
		if !slices.ContainsFunc(all, func(t tier) bool { return t.name == name }) {
			return fmt.Errorf("tenant-tier: %s=%s: there is no such tier", tenant, name)
		}
	}
	return nil
}

// tenantTiers reads TENANT=TIER.
func (c Config) tenantTiers() (map[string]string, error) {
	of := make(map[string]string)
	for _, text := range c.TenantTiers {
		tenant, name, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("tenant-tier: %q is no TENANT=TIER", text)
		}
		if err := (sandboxhost.Grant{Tenant: tenant, Sandbox: sandboxhost.AnySandbox}).Check(); err != nil {
			return nil, fmt.Errorf("tenant-tier: %w", err)
		}
		if of[tenant] != "" {
			return nil, fmt.Errorf("tenant-tier: tenant %s stands twice", tenant)
		}
		of[tenant] = name
	}
	return of, nil
}

// of is what the host is told of a tier with a driver.
func (c Config) of(name string, driver sandboxhost.Driver) sandboxhost.Tier {
	return sandboxhost.Tier{Name: name, Driver: driver, Box: c.box(), IdleStop: c.IdleStop, MaxLife: c.MaxLife, Pool: c.Pool}
}

// hostTiers makes the drivers of all tiers.
func (d *Daemon) hostTiers() ([]sandboxhost.Tier, error) {
	all, err := d.cfg.tiers()
	if err != nil {
		return nil, err
	}
	var made []sandboxhost.Tier
	for _, t := range all {
		driver, _, err := d.drivers(t.Config)
		if err != nil {
			return nil, fmt.Errorf("tier %s: %w", t.name, err)
		}
		made = append(made, t.of(t.name, driver))
	}
	return made, nil
}
