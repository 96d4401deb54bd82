package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// sandboxes lists what sandbox_list tells as "name state".
func (c *wireClient) sandboxes() string {
	c.t.Helper()
	var out []string
	for _, one := range c.ok("sandbox_list", nil).Result["sandboxes"].([]any) {
		out = append(out, fmt.Sprint(one.(obj)["sandbox"], " ", one.(obj)["state"]))
	}
	return strings.Join(out, ", ")
}

// tenantDir is where the sandboxes of acme have their directories.
func (d *wireDaemon) tenantDir(elem ...string) string {
	return filepath.Join(append([]string{d.cfg.StateDir, "sandboxes", "acme"}, elem...)...)
}

// TestWireSandboxes: P17.1, P17.3, P17.4, P17.5 and P17.6.
func TestWireSandboxes(t *testing.T) {
	d := startWire(t, nil)
	c := d.dial()
	hello := c.ok("hello", obj{"protocol": 1, "token": wireSecret})
	d.login(obj{"sandbox": "b"}).conn.Close()
	for _, name := range []string{"a", ".removed-x"} {
		if err := os.Mkdir(d.tenantDir(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := c.sandboxes(), "a stopped, b running, default running"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	own := c.ok("sandbox_info", nil)
	for field, want := range map[string]any{"sandbox": "default", "state": "running", "driver": "host", "epoch": hello.str("epoch")} {
		if own.Result[field] != want {
			t.Errorf("%s is %v, want %v", field, own.Result[field], want)
		}
	}
	if started, err := time.Parse(time.RFC3339Nano, own.str("started")); err != nil || time.Since(started) > patience || len(own.str("instance")) != 36 {
		t.Errorf("got %s", own.line)
	}
	for _, absent := range []string{"ends", "idle_stop_s", "cpu_s", "memory", "processes"} {
		if v, there := own.Result[absent]; there {
			t.Errorf("%s is told: %v", absent, v)
		}
	}
	if r := c.ok("sandbox_info", obj{"sandbox": "a"}); len(r.Result) != 3 || r.Result["state"] != "stopped" || r.Result["driver"] != "host" {
		t.Errorf("got %s", r.line)
	}
	c.fails("sandbox_info", obj{"sandbox": "none"}, -32003, "not_found")
	if _, err := os.Stat(d.tenantDir("none")); !os.IsNotExist(err) {
		t.Error("asking made one")
	}
	first := c.ok("sandbox_create", obj{"sandbox": "none"})
	if again := c.ok("sandbox_create", obj{"sandbox": "none"}); again.str("instance") != first.str("instance") {
		t.Errorf("first %s, then %s", first.line, again.line)
	}
	if got := d.dial().ok("hello", obj{"protocol": 1, "token": wireSecret, "sandbox": "none"}); got.str("epoch") != first.str("epoch") {
		t.Errorf("hello got another: %s", got.line)
	}
}

// TestWireSandboxesCovered: P17.2.
func TestWireSandboxesCovered(t *testing.T) {
	d := startWire(t, nil)
	all, box, other := d.login(), d.login(obj{"token": wireBoxOnly, "sandbox": "box"}), d.login(obj{"token": wireOther})
	if got := box.sandboxes(); got != "box running" {
		t.Errorf("the token of one sees %s", got)
	}
	if got := other.sandboxes(); got != "default running" {
		t.Errorf("another tenant sees %s", got)
	}
	for _, c := range []*wireClient{box, other} {
		for method, more := range map[string]obj{"sandbox_info": {}, "sandbox_remove": {"files": true}, "sandbox_extend": {"seconds": 1}} {
			name := "default"
			if c == other {
				name = "box"
			}
			params := obj{"sandbox": name}
			for k, v := range more {
				params[k] = v
			}
			c.fails(method, params, -32003, "not_found")
		}
	}
	box.fails("sandbox_create", obj{"sandbox": "new"}, -32003, "not_found")
	box.ok("sandbox_info", obj{"sandbox": "box"})
	if got := all.sandboxes(); got != "box running, default running" {
		t.Errorf("the tenant's own token sees %s", got)
	}
}

// TestWireSandboxRemove: P17.7 and P17.9. The sessions of a sandbox that is
// removed end, its files stay or go, and the next hello gets another life.
func TestWireSandboxRemove(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	for _, files := range []bool{false, true} {
		in := d.dial()
		hello := obj{"protocol": 1, "token": wireSecret, "sandbox": "box"}
		epoch := in.ok("hello", hello).str("epoch")
		in.writeFile("dir/f", "kept")
		os.Remove(d.tenantDir("box", "begun")) // from the round before
		running := in.send("exec", obj{"command": "echo >begun; exec sleep 300"})
		await(t, "the command", func() bool { _, err := os.Stat(d.tenantDir("box", "begun")); return err == nil })
		params := obj{"sandbox": "box"}
		if files {
			params["files"] = true
		}
		if r := c.ok("sandbox_remove", params); len(r.Result) != 0 {
			t.Errorf("got %s", r.line)
		}
		if r := in.wait(running).want(t, -32009, "unavailable"); r.Error.Data["reason"] != "sandbox_restarted" || r.Error.Data["outcome"] != "unknown" {
			t.Errorf("got %s", r.line)
		}
		in.closed()
		if _, err := os.Stat(d.tenantDir("box", "dir", "f")); os.IsNotExist(err) != files {
			t.Errorf("files %v: %v", files, err)
		}
		if !files {
			c.ok("sandbox_remove", params) // one that does not run
		} else {
			c.fails("sandbox_remove", params, -32003, "not_found")
		}
		if again := d.dial().ok("hello", hello); again.str("epoch") == epoch {
			t.Errorf("the same epoch: %s", again.line)
		}
	}
	c.writeFile("f", "own")
	c.ok("sandbox_remove", obj{"files": true})
	c.closed()
	if _, err := os.Stat(d.path()); !os.IsNotExist(err) {
		t.Errorf("its own: %v", err)
	}
}

// TestWireSandboxRemovalGoesOn: P17.8. A removal outlives its connection.
func TestWireSandboxRemovalGoesOn(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.ok("sandbox_create", obj{"sandbox": "box"})
	for i := range 2000 {
		if err := os.WriteFile(d.tenantDir("box", fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.send("sandbox_remove", obj{"sandbox": "box", "files": true})
	await(t, "the beginning", func() bool { _, err := os.Stat(d.tenantDir("box")); return os.IsNotExist(err) })
	c.conn.Close()
	await(t, "the end", func() bool {
		left, err := filepath.Glob(d.tenantDir(".removed-*"))
		return err == nil && len(left) == 0
	})
}

// TestWireIdleStop: P17.11 and P17.3. What has no session is stopped, and its
// files are there for the next hello.
func TestWireIdleStop(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.IdleStop = 50 * time.Millisecond })
	c := d.login()
	in := d.dial()
	hello := obj{"protocol": 1, "token": wireSecret, "sandbox": "box"}
	epoch := in.ok("hello", hello).str("epoch")
	in.writeFile("f", "kept")
	if r := c.ok("sandbox_info", obj{"sandbox": "box"}); r.Result["idle_stop_s"] != 0.05 {
		t.Errorf("got %s", r.line)
	}
	in.sh("sleep 0.2", nil)
	in.conn.Close()
	await(t, "the end of box", func() bool { return c.sandboxes() == "box stopped, default running" })
	in = d.dial()
	if again := in.ok("hello", hello); again.str("epoch") == epoch || in.read("f") != "kept" {
		t.Errorf("got %s", again.line)
	}
}

// TestWireTiers: P17.15 and P17.3. A sandbox is made as its tenant's tier says.
func TestWireTiers(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) {
		c.Tiers, c.TenantTiers = []string{"brief=driver:host,idle-stop:50ms,max-life:1h"}, []string{"acme=brief"}
	})
	c := d.login()
	if r := c.ok("sandbox_info", nil); r.Result["tier"] != "brief" || r.Result["driver"] != "host" || r.Result["idle_stop_s"] != 0.05 || r.Result["ends"] == nil {
		t.Errorf("got %s", r.line)
	}
	other := d.login(obj{"token": wireOther})
	if r := other.ok("sandbox_info", nil); r.Result["tier"] != nil || r.Result["idle_stop_s"] != nil || r.Result["ends"] != nil {
		t.Errorf("got %s", r.line)
	}
	if err := os.Mkdir(d.tenantDir("rests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := c.ok("sandbox_info", obj{"sandbox": "rests"}); r.Result["state"] != "stopped" || r.Result["tier"] != "brief" || r.Result["idle_stop_s"] != 0.05 {
		t.Errorf("got %s", r.line)
	}
}

// TestWirePause: P17.17 and P17.20. A driver that cannot pause says so, of what is not
// there nothing is told, and neither changes anything.
func TestWirePause(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	for _, method := range []string{"sandbox_pause", "sandbox_resume"} {
		c.fails(method, obj{"sandbox": "none"}, -32003, "not_found")
		c.fails(method, obj{"sandbox": "Box"}, -32602, "invalid_params")
		c.fails(method, obj{"seconds": 1}, -32602, "invalid_params")
		d.login(obj{"token": wireBoxOnly, "sandbox": "box"}).fails(method, obj{"sandbox": "default"}, -32003, "not_found")
	}
	c.fails("sandbox_pause", nil, -32010, "unsupported")
	if r := c.ok("sandbox_resume", nil); r.Result["state"] != "running" {
		t.Errorf("resumed: %s", r.line)
	}
	if r := c.ok("sandbox_info", nil); r.Result["state"] != "running" {
		t.Errorf("got %s", r.line)
	}
	c.ok("exists", obj{"path": "f"})
}

// TestWireMaxLife: P17.10 and P17.12.
func TestWireMaxLife(t *testing.T) {
	const life = 1500 * time.Millisecond
	d := startWire(t, func(c *daemon.Config) { c.MaxLife = life })
	c := d.login()
	info := c.ok("sandbox_info", nil)
	ends := func(r wireReply) time.Time {
		at, err := time.Parse(time.RFC3339Nano, r.str("ends"))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	if started, err := time.Parse(time.RFC3339Nano, info.str("started")); err != nil || ends(info).Before(started.Add(life)) {
		t.Errorf("got %s", info.line)
	}
	time.Sleep(10 * time.Millisecond) // the clock shall move
	longer := c.ok("sandbox_extend", obj{"seconds": 1000})
	if at := ends(longer); !at.After(ends(info)) || at.After(time.Now().Add(life)) {
		t.Errorf("first %s, then %s", info.line, longer.line)
	}
	if same := c.ok("sandbox_extend", obj{"seconds": 0.001}); !ends(same).Equal(ends(longer)) {
		t.Errorf("first %s, then %s", longer.line, same.line)
	}
	running := c.send("exec", obj{"command": "exec sleep 300"})
	if r := c.wait(running).want(t, -32009, "unavailable"); r.Error.Data["reason"] != "sandbox_restarted" {
		t.Errorf("got %s", r.line)
	}
	if early := time.Until(ends(longer)); early > 0 {
		t.Errorf("it ended %v too early", early)
	}
	c.closed()
	d.login(obj{"sandbox": "box"}).fails("sandbox_extend", obj{"sandbox": "default", "seconds": 1}, -32003, "not_found")
}

// TestWireSandboxParams: P17.10 and P17.14, and that each param is as strict as
// any (P3.17).
func TestWireSandboxParams(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	for _, tc := range []struct {
		method string
		params obj
	}{
		{"sandbox_list", obj{"sandbox": "x"}},
		{"sandbox_info", obj{"sandbox": "Box"}},
		{"sandbox_info", obj{"sandbox": ""}},
		{"sandbox_info", obj{"sandbox": nil}},
		{"sandbox_info", obj{"sandbox": strings.Repeat("a", 64)}},
		{"sandbox_info", obj{"sandbox": "../other"}},
		{"sandbox_create", obj{"request_key": "0190f3c1-7b1e-7d5a-9c3e-0123456789ab"}},
		{"sandbox_create", obj{"files": true}},
		{"sandbox_remove", obj{"request_key": "0190f3c1-7b1e-7d5a-9c3e-0123456789ab"}},
		{"sandbox_remove", obj{"files": "yes"}},
		{"sandbox_extend", obj{"request_key": "0190f3c1-7b1e-7d5a-9c3e-0123456789ab", "seconds": 1}},
		{"sandbox_extend", obj{}},
		{"sandbox_extend", obj{"seconds": 0}},
		{"sandbox_extend", obj{"seconds": -1}},
		{"sandbox_extend", obj{"seconds": 31622401}},
	} {
		c.fails(tc.method, tc.params, -32602, "invalid_params")
	}
	for _, seconds := range []float64{1e-9, 31622400} {
		if r := c.ok("sandbox_extend", obj{"seconds": seconds}); r.Result["ends"] != nil {
			t.Errorf("got %s", r.line)
		}
	}
}

// TestWireSandboxCallsAreCalls: P17.14. They count, and a drain refuses them.
func TestWireSandboxCallsAreCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	d := startWire(t, func(c *daemon.Config) { c.MaxCalls, c.AuditLog = 1, path })
	a, b := d.login(), d.login()
	running := a.send("exec", obj{"command": "echo >begun; exec sleep 300"})
	await(t, "the command", func() bool { _, err := os.Stat(d.path("begun")); return err == nil })
	for method, params := range map[string]obj{"sandbox_list": {}, "sandbox_info": {}, "sandbox_create": {}, "sandbox_remove": {"sandbox": "box"}, "sandbox_extend": {"seconds": 1}} {
		b.call(method, params).exhausted(t, 1)
	}
	a.cancel(running)
	a.wait(running)
	await(t, "the place", func() bool { return b.call("sandbox_list", nil).Error == nil })
	b.ok("sandbox_create", obj{"sandbox": "box"})
	b.ok("sandbox_remove", obj{"sandbox": "box"})
	d.stop()
	lines, _ := audited(t, path)
	for _, method := range []string{"sandbox_create", "sandbox_remove"} {
		found := false
		for _, l := range lines {
			found = found || l["method"] == method && l["sandbox"] == "box" && l["tenant"] == "acme" && l["outcome"] == "ok" && l["who"] != nil
		}
		if !found {
			t.Errorf("%s does not stand in the audit log", method)
		}
	}
}

// TestWireSandboxesInADrain: P17.14. Those that end something wait as others do.
func TestWireSandboxesInADrain(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	running := c.send("exec", obj{"command": "echo >begun; while [ ! -e go ]; do sleep 0.01; done"})
	await(t, "the command", func() bool { _, err := os.Stat(d.path("begun")); return err == nil })
	close(d.drain)
	await(t, "the drain", func() bool { return c.call("stat", obj{"path": "."}).Error != nil })
	for method, params := range map[string]obj{"sandbox_list": {}, "sandbox_info": {}, "sandbox_create": {}, "sandbox_remove": {}, "sandbox_extend": {"seconds": 1}} {
		if r := c.fails(method, params, -32009, "unavailable"); r.Error.Data["reason"] != "draining" {
			t.Errorf("got %s", r.line)
		}
	}
	d.put("go", "")
	if r := c.wait(running); r.Error != nil {
		t.Errorf("got %s", r.line)
	}
}
