package integration

import (
	"os"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// running starts a command that writes its pid and runs until the file go is
// there; it returns the pid.
func (c *wireClient) running(params obj) (id, pid string) {
	c.t.Helper()
	id = c.send("exec", with(params, obj{"command": "echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo ended"}))
	return id, c.d.pids(1)[0]
}

// TestWireGrace: P14.10. The loss of its connection kills a command with a key,
// but not before the grace has passed.
func TestWireGrace(t *testing.T) {
	const grace = 500 * time.Millisecond
	d := startWire(t, func(c *daemon.Config) { c.ReconnectGrace = grace })
	keyed, plain := d.login(), d.login()
	params := withKey(obj{})
	_, pid := keyed.running(params)
	_, other := plain.running(nil)
	cut := time.Now()
	keyed.conn.Close()
	plain.conn.Close()
	awaitEnd(t, []string{other}) // without a key at once, P9.9
	awaitEnd(t, []string{pid})
	if lived := time.Since(cut); lived < grace {
		t.Errorf("it lived %v", lived)
	}
	d.login().fails("exec", with(params, obj{"command": "echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo ended"}), -32800, "cancelled")
}

// TestWireRejoin: P14.10. Who comes back within the grace gets the answer, and
// the command is nobody's to kill while somebody waits.
func TestWireRejoin(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.ReconnectGrace = 2 * time.Second })
	params := withKey(obj{"command": "echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo ended"})
	c := d.login()
	c.send("exec", params)
	pid := d.pids(1)[0]
	control := d.login()
	_, left := control.running(withKey(obj{}))
	control.conn.Close()
	var again string
	for range 3 {
		next := d.login()
		again = next.send("exec", params)
		next.ok("ping", nil)
		c.conn.Close()
		c = next
	}
	awaitEnd(t, []string{left}) // the grace of one that was left earlier is over
	if !alive(pid) {
		t.Fatal("the command was killed while somebody waits")
	}
	d.put("go", "")
	if r := c.wait(again); r.Error != nil || r.content(t, "stdout") != "ended\n" {
		t.Fatal(r.line)
	}
}

// TestWireHalfClose: P14.10 and P4.14. To a peer that reads on the call with a
// key is no cancelled one.
func TestWireHalfClose(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	keyed, pid := c.running(withKey(obj{}))
	plain, other := c.running(obj{})
	if err := c.conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	r := c.wait(keyed).want(t, -32009, "unavailable").outcome(t, "unknown")
	if r.Error.Data["reason"] != "link_lost" {
		t.Errorf("got %s", r.line)
	}
	c.wait(plain).want(t, -32800, "cancelled")
	c.closed()
	awaitEnd(t, []string{other})
	if !alive(pid) {
		t.Error("the command with a key was killed")
	}
}

// TestWireDetach: P14.11. It outlives a grace that another does not, can be found
// again, and ends with its timeout or its daemon.
func TestWireDetach(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.ReconnectGrace = 200 * time.Millisecond })
	start := func(more obj) (params obj, pid string) {
		c := d.login()
		params = withKey(with(more, obj{"command": "echo $$ >> pids; until [ -e go ]; do sleep 0.01; done; echo ended"}))
		c.send("exec", params)
		pid = d.pids(1)[0]
		c.conn.Close()
		return params, pid
	}
	params, pid := start(obj{"detach": true})
	_, timed := start(obj{"detach": true, "timeout_s": 0.3})
	_, control := start(obj{})
	awaitEnd(t, []string{control, timed})
	if !alive(pid) {
		t.Fatal("the detached command was killed")
	}
	d.put("go", "")
	if r := d.login().ok("exec", params); r.content(t, "stdout") != "ended\n" {
		t.Error(r.line)
	}
	os.Remove(d.path("go"))
	_, last := start(obj{"detach": true})
	d.stop()
	awaitEnd(t, []string{last})
}

// TestWireKeyedCancel: P14.12.
func TestWireKeyedCancel(t *testing.T) {
	d := startWire(t, nil)
	a, b := d.login(), d.login()
	params := withKey(obj{"command": "echo $$ >> pids; sleep 300"})
	first := a.send("exec", params)
	pid := d.pids(1)[0]
	second := b.send("exec", params)
	b.ok("ping", nil)
	b.cancel(second)
	b.wait(second).want(t, -32800, "cancelled")
	a.wait(first).want(t, -32800, "cancelled")
	awaitEnd(t, []string{pid})
	d.login().fails("exec", params, -32800, "cancelled")
}

// TestWireDrainWaitsForKeyed: P14.11 and P12.4, P12.5. A command that nobody
// waits for is work like any other.
func TestWireDrainWaitsForKeyed(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.DrainTimeout = 300 * time.Millisecond })
	c := d.login()
	_, pid := c.running(withKey(obj{"detach": true}))
	c.conn.Close()
	close(d.drain)
	if err := <-d.ended; err == nil {
		t.Error("drained while a command ran")
	}
	awaitEnd(t, []string{pid})
}
