package drivers

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// tenant adds one to a place that has no daemon yet and returns its secret.
func (p *place) tenant(t *testing.T, name string) string {
	t.Helper()
	secret, line, err := sandboxhost.NewSecret(sandboxhost.Grant{Tenant: name, Sandbox: sandboxhost.AnySandbox})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(p.dir, "tokens"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line); err != nil {
		t.Fatal(err)
	}
	return secret
}

// TestTiers: P17.15. One daemon has the sandboxes of two tenants made by two
// drivers, and the next daemon takes over those of both.
func TestTiers(t *testing.T) {
	for name, pair := range map[string]struct {
		plain kind
		flags []string // of the tier with a name
		named kind
	}{
		"host and bwrap":  {kind{"bwrap", nil, func(testing.TB) []string { return []string{"--driver", "host"} }, nil}, []string{"driver:bwrap"}, kinds["bwrap"]},
		"crun and docker": {kinds["crun"], []string{"driver:docker", "memory:256MiB"}, kinds["docker"]},
	} {
		t.Run(name, func(t *testing.T) {
			pair.plain.want(t)
			pair.named.want(t)
			flags := append(pair.plain.flags(t), pair.named.flags(t)[2:]...) // but for its --driver
			p := newPlace(t, append(flags, "--tier", "other="+strings.Join(pair.flags, ","), "--tenant-tier", "named=other"))
			secret := p.tenant(t, "named")
			d := p.serve(t)
			of := func(d *daemon, secret string) *adapter.Sandbox {
				return (&place{dir: p.dir, secret: secret}).client(t, d)
			}
			drivers := make(map[string]string)
			for tenant, secret := range map[string]string{"": p.secret, "other": secret} {
				a := of(d, secret)
				if r, err := a.Exec(t.Context(), "echo $$ >pid", sandbox.ExecOptions{}); err != nil || r.ExitCode != 0 {
					t.Fatalf("%+v, %v", r, err)
				}
				s, err := a.SandboxStatus(t.Context(), "")
				if err != nil || s.Tier != tenant {
					t.Errorf("%+v, %v", s, err)
				}
				drivers[tenant] = s.Driver
			}
			if drivers[""] == drivers["other"] || !strings.Contains(pair.flags[0], drivers["other"]) {
				t.Errorf("the drivers are %v", drivers)
			}
			d.end(t, syscall.SIGKILL)
			d = p.serve(t)
			s, err := of(d, secret).SandboxStatus(t.Context(), "")
			if err != nil || s.Tier != "other" || s.Driver != drivers["other"] {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}
