package integration

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// readyz is the first line of what the admin port says.
func (d *wireDaemon) readyz() string {
	d.t.Helper()
	conn := d.connect(d.ready.Admin)
	defer conn.Close()
	io.WriteString(conn, "GET /readyz HTTP/1.0\r\n\r\n")
	b, err := io.ReadAll(conn)
	if err != nil {
		d.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(b), "\r\n")
	return line
}

// beginDrain drains and waits until hello is refused.
func (d *wireDaemon) beginDrain() {
	d.t.Helper()
	close(d.drain)
	await(d.t, "the drain", func() bool {
		c := d.dial()
		defer c.conn.Close()
		return c.call("hello", obj{"protocol": 1, "token": wireSecret}).Error != nil
	})
}

// end waits for the end of the daemon.
func (d *wireDaemon) end() error {
	d.t.Helper()
	select {
	case err := <-d.ended:
		return err
	case <-time.After(patience):
		d.t.Fatal("the daemon does not end")
		return nil
	}
}

func (d *wireDaemon) stillRuns() {
	d.t.Helper()
	select {
	case err := <-d.ended:
		d.t.Fatalf("the daemon ended too early: %v", err)
	default:
	}
}

// TestWireDrain: P12.1, P12.2, P12.3, P12.4, P12.6 and P6.5.
func TestWireDrain(t *testing.T) {
	d := startWire(t, nil)
	if got := d.readyz(); !strings.Contains(got, "200") {
		t.Fatalf("readyz says %s", got)
	}
	c := d.login()
	d.put("r", "to read")
	w, r, aborted := c.mintWrite("w"), c.mintRead("r"), c.mintWrite("a")
	running := c.send("exec", execParams("echo $$ > pids; sleep 300"))
	d.pids(1)
	d.beginDrain()
	if got := d.readyz(); !strings.Contains(got, "503") {
		t.Fatalf("readyz says %s", got)
	}
	late := d.dial()
	late.ok("ping", nil)
	refused := []wireReply{
		late.call("hello", obj{"protocol": 1, "token": wireSecret}),
		c.call("stat", obj{"path": "."}),
		c.call("exec", execParams("true")),
		c.call("write_file_stream", obj{"path": "f"}),
	}
	for _, p := range refused {
		p.want(t, -32009, "unavailable").outcome(t, "none")
		if p.Error.Data["reason"] != "draining" {
			t.Fatalf("got %s", p.line)
		}
	}
	late.ok("ping", nil)
	w.open("written")
	if p := w.commit(7); p.num("bytes") != 7 || d.get("w") != "written" {
		t.Fatalf("got %s", p.line)
	}
	if got := r.open("").all(); got != "to read" || r.result().num("bytes") != 7 {
		t.Fatalf("got %q", got)
	}
	c.ok("transfer_abort", obj{"id": aborted.id})
	c.ok("ping", nil)
	d.stillRuns()
	c.cancel(running)
	c.wait(running).want(t, -32800, "cancelled")
	if err := d.end(); err != nil {
		t.Fatal(err)
	}
}

// TestWireDrainWaitsForVerdicts: P12.4. A verdict is waited for while its
// connection is there and 5 s have not passed.
func TestWireDrainWaitsForVerdicts(t *testing.T) {
	for name, leave := range map[string]func(c *wireClient, k ticket){
		"fetched": func(c *wireClient, k ticket) { k.result() },
		"gone":    func(c *wireClient, k ticket) { c.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			d := startWire(t, nil)
			d.login()
			d.put("f", "x")
			c := d.login()
			k := c.mintRead("f")
			conn := k.open("")
			conn.all()
			conn.Close()
			d.beginDrain()
			d.stillRuns()
			begin := time.Now()
			leave(c, k)
			if err := d.end(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("ended %v later, as if nothing had happened", took)
			}
		})
	}
}

// TestWireDrainTimeout: P12.5 and P12.6.
func TestWireDrainTimeout(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.DrainTimeout = 200 * time.Millisecond })
	c := d.login()
	running := c.send("exec", execParams("echo $$ > pids; sleep 300"))
	k := c.mintWrite("f")
	waiting := c.send("transfer_result", obj{"id": k.id})
	pids := d.pids(1)
	close(d.drain)
	for _, id := range []string{running, waiting} {
		if r := c.wait(id).want(t, -32009, "unavailable"); r.Error.Data["reason"] != "draining" {
			t.Fatalf("got %s", r.line)
		}
	}
	c.closed()
	if err := d.end(); !errors.Is(err, daemon.ErrNotDrained) {
		t.Fatalf("got %v", err)
	}
	if left := living(pids); len(left) > 0 {
		t.Fatalf("%v live", left)
	}
}

// TestWireExitCodes: P12.6, for a process.
func TestWireExitCodes(t *testing.T) {
	for want, command := range []string{"true", "echo $$ > pids; sleep 300"} {
		p := newPlace(t)
		proc := p.start(t, "--drain-timeout", "200ms")
		d := &wireDaemon{t: t, ready: proc.ready}
		d.cfg.StateDir = p.dir + "/state"
		c := d.login(obj{"token": p.secret})
		id := c.send("exec", execParams(command))
		if want == 0 {
			c.wait(id)
		} else {
			d.pids(1)
		}
		proc.kill(t, syscall.SIGTERM)
		if code := proc.exitCode(t); code != want {
			t.Errorf("%s: exit code %d: %s", command, code, proc.log)
		}
	}
}
