package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/controld/controld/sandboxhost/daemon"
)

// with is params with more.
func with(params, more obj) obj {
	all := maps.Clone(params)
	if all == nil {
		all = obj{}
	}
	maps.Copy(all, more)
	return all
}

// withKey is params with a new key.
func withKey(params obj) obj { return with(params, obj{"request_key": uuid.NewString()}) }

// same wants two answers to say the same.
func (r wireReply) same(t *testing.T, other wireReply) {
	t.Helper()
	strip := func(r wireReply) string {
		text, err := json.Marshal([]any{r.Result, r.Error})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if a, b := strip(r), strip(other); a != b {
		t.Fatalf("got %.300s, then %.300s", a, b)
	}
}

// forgotten wants the answer to a call that is past.
func (r wireReply) forgotten(t *testing.T) {
	t.Helper()
	r.want(t, -32603, "outcome_unknown").outcome(t, "unknown")
	if r.Error.Data["reason"] != "request_key" {
		t.Fatalf("got %s", r.line)
	}
}

// TestWireKeysAreUUIDs: P14.1.
func TestWireKeysAreUUIDs(t *testing.T) {
	c := startWire(t, nil).login()
	key := uuid.NewString()
	for _, bad := range []any{"", "x", key[1:], key + "0", strings.ReplaceAll(key, "-", ""), "{" + key + "}", "g" + key[1:], strings.Replace(key, "-", "0", 1), 5, nil} {
		for method, params := range map[string]obj{
			"write_file": {"path": "f", "content": obj{"text": "x"}}, "mkdir": {"path": "d"}, "rm": {"path": "f"}, "exec": {"command": "true"},
			"write_file_stream": {"path": "f"}, "read_file_stream": {"path": "f"},
		} {
			r := c.fails(method, with(params, obj{"request_key": bad}), -32602, "invalid_params")
			if !strings.Contains(r.Error.Message, "request_key") {
				t.Errorf("%s %v: %s", method, bad, r.Error.Message)
			}
		}
	}
	r := c.fails("exec", obj{"command": "true", "detach": true}, -32602, "invalid_params")
	if !strings.Contains(r.Error.Message, "request_key") {
		t.Error(r.Error.Message)
	}
	c.fails("exec", withKey(obj{"command": "true", "detach": "yes"}), -32602, "invalid_params")
	for _, method := range []string{"read_file", "read_file_buffer", "stat", "readdir", "exists"} {
		c.fails(method, withKey(obj{"path": "f"}), -32602, "invalid_params")
	}
	c.ok("exec", obj{"command": "true", "detach": false})
}

// TestWireKeyedCallsAreDoneOnce: P14.2 and P14.3, for each method.
func TestWireKeyedCallsAreDoneOnce(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.sh("mkdir there gone; echo x > victim")
	for _, tt := range []struct {
		method string
		params obj
		undo   string // what a second run would not leave alone
		check  string
	}{
		{"write_file", obj{"path": "f", "content": obj{"text": "first"}}, "echo second > f", `[ "$(cat f)" = second ]`},
		{"mkdir", obj{"path": "d"}, "rmdir d", "[ ! -e d ]"},
		{"mkdir", obj{"path": "there"}, "rmdir there", "[ ! -e there ]"},
		{"rm", obj{"path": "victim"}, "echo x > victim", "[ -e victim ]"},
		{"rm", obj{"path": "never"}, "echo x > never", "[ -e never ]"},
		{"exec", obj{"command": "echo $$ | tee -a log; exit 3"}, ":", `[ "$(wc -l < log)" -eq 1 ]`},
		{"exec", obj{"command": "true", "cwd": "none"}, "mkdir none", "[ -e none ]"},
		{"write_file_stream", obj{"path": "none/such/f"}, "mkdir -p none/such", "[ -e none/such ]"},
	} {
		params := withKey(tt.params)
		first := c.call(tt.method, params)
		c.sh(tt.undo)
		other := d.login()
		other.call(tt.method, params).same(t, first)
		params["request_key"] = strings.ToUpper(params["request_key"].(string))
		c.call(tt.method, params).same(t, first)
		if r := c.sh(tt.check); r.Result["exit_code"] != 0.0 {
			t.Errorf("%s %v was done again", tt.method, tt.params)
		}
		c.fails("mkdir", obj{"path": "other", "request_key": params["request_key"]}, -32006, "conflict")
		more := map[string]obj{"write_file": {"mode": 0o600}, "mkdir": {"recursive": true}, "rm": {"force": true}, "exec": {"timeout_s": 5}, "write_file_stream": {"sync": true}}
		c.fails(tt.method, with(params, more[tt.method]), -32006, "conflict")
		if other := map[string]string{"mkdir": "rm", "rm": "mkdir"}[tt.method]; other != "" {
			c.fails(other, params, -32006, "conflict")
		}
		if tt.method == "write_file" {
			c.fails(tt.method, with(params, obj{"content": obj{"text": "other"}}), -32006, "conflict")
			c.call(tt.method, with(params, obj{"content": obj{"base64": "Zmlyc3Q="}, "sync": false})).same(t, first)
		}
	}
}

// TestWireKeysAreTheirTenants: P14.2.
func TestWireKeysAreTheirTenants(t *testing.T) {
	d := startWire(t, nil)
	params := withKey(obj{"command": "pwd"})
	seen := map[string]bool{}
	for _, who := range []obj{{}, {"sandbox": "box"}, {"token": wireOther}} {
		seen[d.login(who).ok("exec", params).out(t)] = true
		d.login(who).fails("exec", with(params, obj{"command": "true"}), -32006, "conflict")
	}
	if len(seen) != 3 {
		t.Errorf("got %v", seen)
	}
}

// TestWireKeysJoin: P14.2. Who comes while the call runs waits for it.
func TestWireKeysJoin(t *testing.T) {
	d := startWire(t, nil)
	params := withKey(obj{"command": "echo run >> log; until [ -e go ]; do sleep 0.01; done; echo $$"})
	var clients []*wireClient
	var ids []string
	for range 5 {
		c := d.login()
		clients, ids = append(clients, c), append(ids, c.send("exec", params))
	}
	await(t, "the command", func() bool { _, err := os.Stat(d.path("log")); return err == nil })
	again := clients[0].send("exec", params)
	d.login().fails("exec", with(params, obj{"command": "true"}), -32006, "conflict")
	d.put("go", "")
	first := clients[0].wait(ids[0])
	clients[0].wait(again).same(t, first)
	for i, c := range clients[1:] {
		c.wait(ids[i+1]).same(t, first)
	}
	if d.get("log") != "run\n" || first.out(t) == "|" {
		t.Errorf("ran %q: %s", d.get("log"), first.line)
	}
}

// TestWireKeysUnused: P14.4. What did not begin leaves its key free.
func TestWireKeysUnused(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxInflight = 1 })
	c := d.login()
	params := withKey(obj{"command": "echo run >> log"})
	c.fails("exec", with(params, obj{"timeout_s": 0}), -32602, "invalid_params")
	block := c.send("exec", obj{"command": "echo > begun; sleep 300"})
	await(t, "the command", func() bool { _, err := os.Stat(d.path("begun")); return err == nil })
	queued := c.send("exec", params)
	c.cancel(queued)
	c.wait(queued).want(t, -32800, "cancelled")
	close(d.drain)
	await(t, "the drain", func() bool {
		r := d.dial().call("hello", obj{"protocol": 1, "token": wireSecret})
		return r.Error != nil && r.Error.Data["reason"] == "draining"
	})
	c.fails("exec", params, -32009, "unavailable").outcome(t, "none")
	c.cancel(block)
	c.wait(block).want(t, -32800, "cancelled")
	d.stop()
	next := runWire(t, d.cfg)
	next.login().ok("exec", params)
	if got := next.get("log"); got != "run\n" {
		t.Errorf("ran %q", got)
	}
}

// TestWireKeysOfRefusedCalls: P14.4. What a tenant's limit refuses may come
// again with its key, here and over a restart.
func TestWireKeysOfRefusedCalls(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxExecs, c.MaxTokens = 1, 1 })
	c, other := d.login(), d.login()
	params, mint := withKey(obj{"command": "echo run >> log"}), withKey(obj{"path": "f"})
	late := withKey(obj{"command": "echo late >> log"})
	block := c.send("exec", obj{"command": "echo > begun; sleep 300"})
	await(t, "the command", func() bool { _, err := os.Stat(d.path("begun")); return err == nil })
	other.call("exec", params).exhausted(t, 1)
	other.call("exec", late).exhausted(t, 1)
	waiting := other.mintWrite("g")
	other.call("write_file_stream", mint).exhausted(t, 1)
	c.cancel(block)
	c.wait(block).want(t, -32800, "cancelled")
	other.ok("transfer_abort", obj{"id": waiting.id})
	await(t, "the place of the command", func() bool { return other.call("exec", params).Error == nil })
	other.ok("write_file_stream", mint)
	d.stop()
	next := runWire(t, d.cfg)
	next.login().ok("exec", late)
	next.login().fails("exec", params, -32603, "outcome_unknown")
	if got := next.get("log"); got != "run\nlate\n" {
		t.Errorf("ran %q", got)
	}
}

// TestWireKeysInADrain: P12.2. A call that runs, or has been answered, is no
// new work when it comes again.
func TestWireKeysInADrain(t *testing.T) {
	d := startWire(t, nil)
	c, again := d.login(), d.login()
	made, running := withKey(obj{"path": "dir"}), withKey(obj{"command": "echo > begun; read x < go; echo done"})
	c.ok("mkdir", made)
	c.ok("exec", obj{"command": "mkfifo go"})
	first := c.send("exec", running)
	await(t, "the command", func() bool { _, err := os.Stat(d.path("begun")); return err == nil })
	close(d.drain)
	await(t, "the drain", func() bool { return again.call("mkdir", obj{"path": "new"}).Error != nil })
	again.ok("mkdir", made)
	second := again.send("exec", running)
	again.fails("exec", withKey(obj{"command": "true"}), -32009, "unavailable")
	again.ok("ping", nil)
	if err := os.WriteFile(d.path("go"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	for _, r := range []wireReply{c.wait(first), again.wait(second)} {
		if r.Error != nil || r.Result["exit_code"] != 0.0 {
			t.Errorf("got %s", r.line)
		}
	}
}

// TestWireKeysFallOut: P14.6 and P14.7, by number and by size.
func TestWireKeysFallOut(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	first := withKey(obj{"path": "first"})
	c.ok("mkdir", first)
	for range 4095 {
		c.ok("mkdir", withKey(obj{"path": ".", "recursive": true}))
	}
	c.ok("mkdir", first)
	c.ok("mkdir", withKey(obj{"path": ".", "recursive": true}))
	c.sh("rmdir first")
	c.call("mkdir", first).forgotten(t)
	c.call("mkdir", with(first, obj{"path": "other"})).forgotten(t)
	if names, _ := os.ReadDir(d.path()); len(names) != 0 {
		t.Errorf("made again: %v", names)
	}

	c = d.login(obj{"token": wireOther})
	var all []obj
	for range 5 {
		p := withKey(obj{"command": "echo run >> log; head -c 8388608 /dev/zero | tr '\\0' x | tee /dev/stderr"})
		c.ok("exec", p)
		all = append(all, p)
	}
	c.call("exec", all[0]).forgotten(t)
	c.ok("exec", all[2])
	if n := c.sh("wc -l < log").out(t); strings.TrimSpace(n) != "5\n|" {
		t.Errorf("ran %q times", n)
	}
}

// TestWireKeysAreWrittenFirst: P14.8. The command finds its own key written.
func TestWireKeysAreWrittenFirst(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	count := "cat " + filepath.Join(d.cfg.StateDir, "keys", "acme") + "/* | wc -c"
	for n := 1; n <= 3; n++ {
		if got := strings.TrimSpace(c.ok("exec", withKey(obj{"command": count})).content(t, "stdout")); got != fmt.Sprint(8*n) {
			t.Errorf("%d. command: %s bytes are written", n, got)
		}
	}
}

// TestKeysOutliveAKilledDaemon: P14.7 and P14.8, with a process of its own.
func TestKeysOutliveAKilledDaemon(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	c := dialControl(t, d)
	c.hello(p)
	done, running, never := uuid.NewString(), uuid.NewString(), uuid.NewString()
	say := func(key, command string) {
		c.say(`{"jsonrpc":"2.0","id":%q,"method":"exec","params":{"command":%q,"request_key":%q}}`, key, command, key)
	}
	const doneCommand, runCommand = "echo done >> log", "echo running >> log; sleep 300"
	say(done, doneCommand)
	if r := c.hear(); r.Error != nil {
		t.Fatalf("%+v", r.Error)
	}
	say(running, runCommand)
	log := filepath.Join(p.cwd(), "log")
	await(t, "both", func() bool { b, _ := os.ReadFile(log); return string(b) == "done\nrunning\n" })
	d.kill(t, syscall.SIGKILL)
	<-d.exited

	c = dialControl(t, p.start(t))
	c.hello(p)
	say(done, doneCommand)
	say(running, runCommand)
	for range 2 {
		if r := c.hear(); r.Error == nil || r.Error.Code != -32603 || r.Error.Data["kind"] != "outcome_unknown" || r.Error.Data["outcome"] != "unknown" {
			t.Errorf("%s: %+v %v", r.ID, r.Error, r.Result)
		}
	}
	say(never, "echo never >> log")
	if r := c.hear(); r.Error != nil {
		t.Errorf("%+v", r.Error)
	}
	if b, err := os.ReadFile(log); err != nil || string(b) != "done\nrunning\nnever\n" {
		t.Errorf("ran %q, %v", b, err)
	}
}

// TestWireKeyTooMany: P14.9.
func TestWireKeyTooMany(t *testing.T) {
	if n := daemon.Default().MaxRequestKeys; n != 1<<20 {
		t.Errorf("by default %d", n)
	}
	d := startWire(t, func(c *daemon.Config) { c.MaxRequestKeys = 2 })
	c := d.login()
	first, second := withKey(obj{"command": "echo 1"}), withKey(obj{"path": "d"})
	r := c.ok("exec", first)
	c.ok("mkdir", second)
	third := withKey(obj{"path": "e"})
	no := c.fails("mkdir", third, -32009, "resource_exhausted").outcome(t, "none")
	if no.Error.Data["reason"] != "request_key" || no.Error.Data["limit"] != 2.0 || no.Error.Data["retry_after_s"] == nil {
		t.Errorf("got %s", no.line)
	}
	if _, err := os.Stat(d.path("e")); err == nil {
		t.Error("refused, and done")
	}
	c.call("exec", first).same(t, r)
	c.ok("mkdir", second)
	c.ok("mkdir", obj{"path": "e"})
	d.login(obj{"token": wireOther}).ok("mkdir", third)
}
