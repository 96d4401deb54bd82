package sandboxhost_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// named is a driver with another name, whose sandboxes outlive their host.
type named struct {
	keeper
	name string
}

func (d *named) Name() string { return d.name }

// session is one of a tenant for all its sandboxes.
func session(tenant string) *server.Session {
	return &server.Session{Tenant: tenant, Sandbox: "default", WholeTenant: true}
}

// TestTiers: P17.15. Each tenant's sandboxes are made as the policy says, for a
// whole life, and the policy that changes counts for the next.
func TestTiers(t *testing.T) {
	plain, strict := &named{name: "plain"}, &named{name: "strict"}
	small := sandboxhost.Tier{Name: "small", Driver: strict, Box: sandboxhost.Box{Memory: 1 << 30}, IdleStop: time.Hour, MaxLife: 2 * time.Hour}
	state := filepath.Join(t.TempDir(), "state")
	open := func() *sandboxhost.Host {
		h, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: plain, Tiers: []sandboxhost.Tier{small},
			TenantTiers: map[string]string{"acme": "small"}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := open()
	want := func(h *sandboxhost.Host, tenant, name string, state sandbox.State, driver, tier string) {
		t.Helper()
		s, err := h.SandboxStatus(t.Context(), session(tenant), name)
		if err != nil || s.State != state || s.Driver != driver || s.Tier != tier || (s.IdleStop == time.Hour) != (tier == "small") ||
			s.Ends.Known != (tier == "small" && state == sandbox.StateRunning) {
			t.Errorf("%s/%s: %+v, %v", tenant, name, s, err)
		}
	}
	for _, tenant := range []string{"acme", "other"} {
		if _, err := h.Backend(t.Context(), tenant, "a"); err != nil {
			t.Fatal(err)
		}
	}
	want(h, "acme", "a", sandbox.StateRunning, "strict", "small")
	want(h, "other", "a", sandbox.StateRunning, "plain", "")
	if len(strict.specs) != 1 || strict.specs[0].Box != small.Box || strict.specs[0].Tier != "small" || len(plain.specs) != 1 || plain.specs[0].Box != (sandboxhost.Box{}) {
		t.Errorf("%+v, %+v", strict.specs, plain.specs)
	}

	if err := h.SetTenantTiers(map[string]string{"other": "small"}); err != nil {
		t.Fatal(err)
	}
	want(h, "acme", "a", sandbox.StateRunning, "strict", "small")
	want(h, "other", "a", sandbox.StateRunning, "plain", "")
	plain.last.Stop()
	want(h, "other", "a", sandbox.StateStopped, "strict", "small")
	if _, err := h.Backend(t.Context(), "other", "a"); err != nil {
		t.Fatal(err)
	}
	want(h, "other", "a", sandbox.StateRunning, "strict", "small")

	// The host is never closed: the next one takes over what lives.
	strict.living = map[string]bool{strict.specs[0].ID: true, strict.specs[1].ID: true}
	again := open()
	if err := again.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	want(again, "other", "a", sandbox.StateRunning, "strict", "small")
	want(again, "acme", "a", sandbox.StateRunning, "strict", "small")
}

// TestTierThatIsNoMore: what lives of a tier is taken over without it.
func TestTierThatIsNoMore(t *testing.T) {
	plain, strict := &named{name: "plain"}, &named{name: "strict"}
	state := filepath.Join(t.TempDir(), "state")
	before, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: plain,
		Tiers: []sandboxhost.Tier{{Name: "small", Driver: strict}}, TenantTiers: map[string]string{"acme": "small"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.Backend(t.Context(), "acme", "a"); err != nil {
		t.Fatal(err)
	}
	strict.living = map[string]bool{strict.specs[0].ID: true}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: plain, Others: []sandboxhost.Driver{strict}, MaxLife: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := h.SandboxStatus(t.Context(), session("acme"), "a")
	if err != nil || s.Driver != "strict" || s.Tier != "small" || !s.Ends.Known {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestTiersThatCannotBe are refused, and a policy that names one changes nothing.
func TestTiersThatCannotBe(t *testing.T) {
	d := &driver{}
	for name, cfg := range map[string]sandboxhost.Config{
		"a bad name":   {Tiers: []sandboxhost.Tier{{Name: "A", Driver: d}}},
		"no name":      {Tiers: []sandboxhost.Tier{{Driver: d}}},
		"two":          {Tiers: []sandboxhost.Tier{{Name: "a", Driver: d}, {Name: "a", Driver: d}}},
		"no such tier": {TenantTiers: map[string]string{"acme": "a"}},
		"no tier":      {TenantTiers: map[string]string{"acme": ""}},
		"a bad tenant": {Tiers: []sandboxhost.Tier{{Name: "a", Driver: d}}, TenantTiers: map[string]string{"a/b": "a"}},
	} {
		cfg.StateDir, cfg.Driver = filepath.Join(t.TempDir(), "state"), d
		if _, err := sandboxhost.New(cfg); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// TestTryTiers: a tier whose driver cannot run is named, and nothing is left of
// the trial.
func TestTryTiers(t *testing.T) {
	good, bad := &driver{}, &named{name: "bad"}
	bad.driver.fail.Store(true)
	state := filepath.Join(t.TempDir(), "state")
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: &driver{},
		Tiers: []sandboxhost.Tier{{Name: "a", Driver: good}, {Name: "b", Driver: bad}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.TryTiers(t.Context()); err == nil || !strings.Contains(err.Error(), "tier b: the driver bad cannot run: ") || strings.Contains(err.Error(), "tier a") {
		t.Errorf("%v", err)
	}
	if good.starts.Load() != 1 || bad.starts.Load() != 1 {
		t.Errorf("%d, %d starts", good.starts.Load(), bad.starts.Load())
	}
	for _, dir := range []string{"run", "pool", "sandboxes"} {
		if left, err := os.ReadDir(filepath.Join(state, dir)); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v", dir, left, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(state, "ids.json")); err == nil && string(text) != "{}\n" {
		t.Errorf("users are given: %s", text)
	}
}
