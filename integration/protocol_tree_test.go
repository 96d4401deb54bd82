package integration

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost/daemon"
)

// family is a command that starts processes which escape in every way, writes
// their numbers to the file pids, one a line, and stays. They do not mind TERM.
const family = `trap '' TERM
echo $$ >> pids
sleep 300 & echo $! >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 300' &
( (echo $(sh -c 'echo $PPID') >> pids; exec sleep 300) & )
` + stray + `
while :; do sleep 300; done`

// stray leaves its session and loses every parent in it.
const stray = `(setsid sh -c '(sh -c "echo \$\$ >> pids; exec sleep 300" &)' &)`

const familySize = 5

// pids waits until the family has written that many numbers and takes them.
func (d *wireDaemon) pids(n int) []string {
	d.t.Helper()
	var got []string
	await(d.t, "the processes", func() bool {
		b, _ := os.ReadFile(d.path("pids"))
		got = strings.Fields(string(b))
		return len(got) == n && strings.HasSuffix(string(b), "\n")
	})
	if err := os.Remove(d.path("pids")); err != nil {
		d.t.Fatal(err)
	}
	return got
}

// awaitEnd waits for the end of processes: on a busy machine an answer does not,
// see P9.9.
func awaitEnd(t *testing.T, pids []string) {
	t.Helper()
	await(t, "the end of the tree", func() bool { return len(living(pids)) == 0 })
}

func living(pids []string) (out []string) {
	for _, p := range pids {
		if alive(p) {
			out = append(out, p)
		}
	}
	return out
}

// TestWireExecTreeDies: P9.9, P9.10 and P4.10, held by cgroups and without.
func TestWireExecTreeDies(t *testing.T) {
	for _, cgroups := range []string{"auto", "off"} {
		t.Run(cgroups, func(t *testing.T) {
			d := startWire(t, func(c *daemon.Config) { c.Cgroups = cgroups })
			c := d.login()
			id := c.send("exec", execParams(family, obj{"timeout_s": 5}))
			pids := d.pids(familySize)
			if r := c.wait(id); r.str("reason") != "timed_out" || r.Result["duration_s"].(float64) < 5 {
				t.Fatalf("got %s", r.line)
			}
			awaitEnd(t, pids)

			id = c.send("exec", execParams(family))
			pids = d.pids(familySize)
			c.cancel(id)
			c.wait(id).want(t, -32800, "cancelled")
			awaitEnd(t, pids)

			x := d.login()
			x.send("exec", execParams(family))
			pids = d.pids(familySize)
			x.conn.Close()
			awaitEnd(t, pids)
		})
	}
}

// TestWireExecGrace: P9.9. TERM comes first, and who goes then has its time.
func TestWireExecGrace(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	id := c.send("exec", execParams("trap 'sleep 0.2; echo bye > said; exit 0' TERM; echo $$ > pids; while :; do sleep 0.01; done", obj{"kill_grace_s": 600}))
	d.pids(1)
	c.cancel(id)
	c.wait(id).want(t, -32800, "cancelled")
	if got := d.get("said"); got != "bye\n" {
		t.Fatalf("said %q", got)
	}
	// Who does not go is killed, grace or no grace.
	id = c.send("exec", execParams("trap '' TERM; echo $$ > pids; while :; do sleep 0.01; done", obj{"kill_grace_s": 0.05}))
	pids := d.pids(1)
	c.cancel(id)
	c.wait(id).want(t, -32800, "cancelled")
	awaitEnd(t, pids)
}

// TestWireExecBackground: P9.11. The answer does not wait for a child that
// keeps stdout open; the child ends with the daemon.
func TestWireExecBackground(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	r := c.sh("sleep 300 & echo $! > pids; printf done")
	pids := d.pids(1)
	if r.out(t) != "done|" || r.Result["background"] != true || r.str("reason") != "exited" {
		t.Fatalf("got %s", r.line)
	}
	if took := r.Result["duration_s"].(float64); took > 10 {
		t.Fatalf("the shell took %v s", took)
	}
	if len(living(pids)) != 1 {
		t.Fatal("the child did not outlive its shell")
	}
	if r := c.sh("(sleep 300 >/dev/null 2>&1 &) ; true"); r.Result["background"] != true {
		t.Fatalf("got %s", r.line)
	}
	d.stop()
	if left := living(pids); len(left) > 0 {
		t.Fatal("the child outlived the daemon")
	}
}

// TestWireKilledDaemon: P9.15 and P8.18. A daemon that was killed leaves
// processes and half an upload; the next one is ready without them, and has
// touched nothing else.
func TestWireKilledDaemon(t *testing.T) {
	p := newPlace(t)
	run := func() (*process, *wireDaemon) {
		proc := p.start(t)
		d := &wireDaemon{t: t, ready: proc.ready}
		d.cfg.StateDir = p.dir + "/state"
		return proc, d
	}
	proc, d := run()
	c := d.login(obj{"token": p.secret})
	c.send("exec", execParams(strings.Replace(family, stray, "", 1)))
	pids := d.pids(familySize - 1)
	d.put(".controld-looks-like-a-temp", "mine")
	k := c.mintWrite("f")
	k.open("half")
	proc.kill(t, syscall.SIGKILL)
	<-proc.exited
	_, d = run()
	if left := living(pids); len(left) > 0 {
		t.Errorf("%v outlived the next start", left)
	}
	names, err := os.ReadDir(d.path())
	if err != nil || len(names) != 1 || d.get(".controld-looks-like-a-temp") != "mine" {
		t.Errorf("the sandbox holds %v, %v", names, err)
	}
}

// TestWireKillPending: P9.10. What a frozen cgroup of version 1 keeps from
// dying is said to live.
func TestWireKillPending(t *testing.T) {
	frozen := fmt.Sprintf("/sys/fs/cgroup/freezer/controld-integration-%d", os.Getpid())
	if err := os.Mkdir(frozen, 0o755); err != nil {
		t.Skipf("needs the freezer of cgroup version 1: %v", err)
	}
	set := func(state string) {
		if err := os.WriteFile(frozen+"/freezer.state", []byte(state), 0o644); err != nil {
			t.Error(err)
		}
	}
	set("FROZEN")
	t.Cleanup(func() {
		set("THAWED")
		await(t, "an empty freezer", func() bool { return os.Remove(frozen) == nil })
	})
	d := startWire(t, nil)
	c := d.login()
	id := c.send("exec", execParams("echo $$ > pids; echo $$ > "+frozen+"/cgroup.procs", obj{"timeout_s": 3}))
	pids := d.pids(1)
	if r := c.wait(id); r.str("reason") != "timed_out" || r.Result["kill_pending"] != true || r.Result["background"] != true {
		t.Fatalf("got %s", r.line)
	}
	if len(living(pids)) != 1 {
		t.Fatal("it is gone")
	}
	set("THAWED")
	awaitEnd(t, pids)
}

// TestWireLimitsThatCannotBeHeld: P9.16. That they hold where they can is shown
// in a machine of its own, see integration/guest.
func TestWireLimitsThatCannotBeHeld(t *testing.T) {
	cfg := wireConfig(t)
	cfg.Cgroups, cfg.ExecMemory = string(local.CgroupsOff), 1<<20
	d, err := daemon.New(cfg, daemon.Options{Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "exec-memory") {
		t.Errorf("started: %v", err)
	}
}
