package daemon

import (
	"strings"
	"testing"
	"time"
)

// TestTier: what a tier names is its own, what it does not is as the flags say.
func TestTier(t *testing.T) {
	c := Default()
	c.Driver, c.IdleStop, c.Engine = "bwrap", time.Minute, "unix:///engine"
	c.Tiers = []string{
		"small=driver:oci,runtime:crun,memory:2GiB,processes:100,cpus:1.5,network:host,max-life:1h",
		"image=driver:docker,image:registry:5000/a@sha256:b,engine:unix:///other,idle-stop:0s",
	}
	all, err := c.tiers()
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	small, image := all[0], all[1]
	if small.name != "small" || small.Driver != "oci" || small.Runtime != "crun" || small.SandboxMemory != 2<<30 || small.SandboxProcesses != 100 ||
		small.SandboxCPUs != 1.5 || small.Network != "host" || small.MaxLife != time.Hour || small.IdleStop != time.Minute || small.Engine != "unix:///engine" {
		t.Errorf("%+v", small)
	}
	if image.Driver != "docker" || image.Image != "registry:5000/a@sha256:b" || image.Engine != "unix:///other" || image.IdleStop != 0 || image.SandboxMemory != 0 {
		t.Errorf("%+v", image)
	}
	if box := small.of("small", nil).Box; box.Memory != 2<<30 || box.CPUs != 1.5 {
		t.Errorf("%+v", box)
	}
}

// TestTiersRefused: a message says which tier, and what is wrong with it.
func TestTiersRefused(t *testing.T) {
	for name, c := range map[string]struct {
		tiers, tenants []string
		want           string
	}{
		"no name":        {[]string{"=driver:host"}, nil, `tier "": want`},
		"a bad name":     {[]string{"A b=driver:host"}, nil, `tier "A b": want`},
		"nothing":        {[]string{"a"}, nil, "tier a: want NAME=KEY:VALUE"},
		"nothing said":   {[]string{"a="}, nil, "tier a: want NAME=KEY:VALUE"},
		"no pair":        {[]string{"a=driver"}, nil, `tier a: "driver" is no KEY:VALUE`},
		"unknown key":    {[]string{"a=drivr:host"}, nil, `tier a: unknown key "drivr"; there is cpus, driver`},
		"a key twice":    {[]string{"a=cpus:1,cpus:2"}, nil, `tier a: key "cpus" stands twice`},
		"a tier twice":   {[]string{"a=cpus:1", "a=cpus:1"}, nil, "tier a: it stands twice"},
		"unknown driver": {[]string{"a=driver:vm"}, nil, `tier a: driver: "vm" is unknown`},
		"bad memory":     {[]string{"a=memory:lots"}, nil, `tier a: memory: "lots"`},
		"huge memory":    {[]string{"a=memory:16EiB"}, nil, `tier a: memory: "16EiB"`},
		"bad processes":  {[]string{"a=processes:1.5"}, nil, `tier a: processes: "1.5"`},
		"bad cpus":       {[]string{"a=cpus:all"}, nil, `tier a: cpus: "all"`},
		"below 0":        {[]string{"a=driver:host,idle-stop:-1s"}, nil, "tier a: idle-stop: -1s is below 0"},
		"host bounded":   {[]string{"a=driver:host,memory:1GiB"}, nil, "tier a: image, network, sandbox-...: the driver host has no sandbox"},
		"no such tier":   {[]string{"a=driver:host"}, []string{"acme=b"}, "tenant-tier: acme=b: there is no such tier"},
		"no tier named":  {[]string{"a=driver:host"}, []string{"acme="}, "tenant-tier: acme=: there is no such tier"},
		"no tenant":      {nil, []string{"acme"}, `tenant-tier: "acme" is no TENANT=TIER`},
		"a bad tenant":   {[]string{"a=driver:host"}, []string{"a/b=a"}, `tenant-tier: tenant "a/b"`},
		"a tenant twice": {[]string{"a=driver:host"}, []string{"acme=a", "acme=a"}, "tenant-tier: tenant acme stands twice"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Default()
			cfg.Tokens, cfg.Tiers, cfg.TenantTiers = "tokens", c.tiers, c.tenants
			if err := cfg.Check(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s...", err, c.want)
			}
		})
	}
}
