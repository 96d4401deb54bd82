package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/work"
)

const aKey = "0190f3c1-7b1e-7d5a-9c3e-0123456789ab"

// startKeyed is start with the capability keys.
func startKeyed(t *testing.T, adjust func(*server.Config)) *rig {
	t.Helper()
	keys, err := work.NewKeys(work.KeysConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(keys.Close)
	return start(t, func(c *server.Config) {
		c.Keys = keys
		if adjust != nil {
			adjust(c)
		}
	})
}

func keyedExec(id int, command string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"exec","params":{"command":%q,"request_key":%q}}`, id, command, aKey)
}

// TestKeysNotOffered holds P14.1: then their fields are unknown, wherever the
// params stand, and hello says nothing of them.
func TestKeysNotOffered(t *testing.T) {
	g := start(t, nil)
	g.extra = []string{sandbox.CapKeys} // the backend's do not make the server's
	r := g.dial()
	p := r.call(helloLine)
	for _, word := range []string{"keys", "reconnect_grace_s", "kept_keys_s"} {
		if text := p.text(t, "capabilities") + p.text(t, "limits"); strings.Contains(text, word) {
			t.Errorf("hello speaks of %s: %s", word, text)
		}
	}
	for field, value := range map[string]string{"request_key": `"` + aKey + `"`, "detach": "false"} {
		for _, form := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"exec","params":{"command":"echo x",%q:%s}}`,
			`{"params":{"command":"echo x",%q:%s},"jsonrpc":"2.0","id":1,"method":"exec"}`,
		} {
			e := r.expect(fmt.Sprintf(form, field, value), "1", -32602, "invalid_params")
			if !strings.Contains(e.Error.Message, field+" is not known") {
				t.Errorf("%s: %s", field, e.Error.Message)
			}
		}
	}
	for _, method := range []string{"write_file", "mkdir", "rm", "write_file_stream", "read_file_stream"} {
		r.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"path":"x","request_key":%q}}`, method, aKey), "1", -32602, "invalid_params")
	}
}

// TestKeysArePassedOn holds P14.13: to a backend that has the capability alone.
func TestKeysArePassedOn(t *testing.T) {
	for _, has := range []bool{true, false} {
		g := startKeyed(t, nil)
		want := sandbox.ExecOptions{}
		if has {
			g.extra = []string{sandbox.CapKeys}
			want = sandbox.ExecOptions{RequestKey: aKey, Detach: true}
		}
		r := g.login()
		line := strings.Replace(keyedExec(1, "echo x"), `"request_key"`, `"detach":true,"request_key"`, 1)
		r.expect(line, "1", 0, "")
		got := g.fake.seen.(sandbox.ExecOptions)
		if got.RequestKey != want.RequestKey || got.Detach != want.Detach {
			t.Errorf("%v: got %+v", has, got)
		}
		g.fake.seen = nil
		r.expect(line, "1", 0, "")
		if g.fake.seen != nil {
			t.Errorf("%v: it came twice", has)
		}
	}
}

// TestKeyedPanic: an incident is an answer like any other.
// Rules: P6.6 and P14.2.
func TestKeyedPanic(t *testing.T) {
	g := startKeyed(t, nil)
	first := g.login().expect(keyedExec(1, "panic"), "1", -32603, "internal")
	if again := g.login().expect(keyedExec(1, "panic"), "1", -32603, "internal"); again.Error.Message != first.Error.Message {
		t.Errorf("%q, then %q", first.Error.Message, again.Error.Message)
	}
}

// TestKeptAnswersAreNotInFlight: what is kept is not charged as what is sent,
// and an answer that comes again is.
// Rules: P5.10 and P14.6.
func TestKeptAnswersAreNotInFlight(t *testing.T) {
	g := startKeyed(t, func(c *server.Config) { c.Limits.MaxBufferedInflightBytes = 64 << 10 })
	r := g.login()
	for i := range 8 {
		line := strings.Replace(keyedExec(1, "grow 51200"), aKey, fmt.Sprintf("0190f3c1-7b1e-7d5a-9c3e-%012d", i), 1)
		for range 2 {
			p := r.call(line)
			if _, omitted := p.Result["stdout_omitted"]; p.Error != nil || omitted {
				t.Fatalf("%d: omitted %v, %+v", i, omitted, p.Error)
			}
			r.expect(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, "2", 0, "") // behind which the answer is given back
		}
	}
}

// TestAnswersAgainAreCharged: a kept answer that is on its way once more is
// charged like any other until its peer has it or is gone.
// Rules: P5.10.
func TestAnswersAgainAreCharged(t *testing.T) {
	g := startKeyed(t, func(c *server.Config) { c.Limits.MaxBufferedInflightBytes = 8 << 20 })
	const big = "grow 6291456"
	r := g.login()
	whole := func() bool {
		p := r.call(exec(1, big))
		r.expect(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, "2", 0, "")
		return p.Result["stdout_omitted"] == nil
	}
	r.expect(keyedExec(1, big), "1", 0, "")
	slow := g.login()
	slow.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	slow.send(keyedExec(1, big))
	waitFor(t, func() bool { return !whole() })
	slow.conn.Close()
	waitFor(t, whole)
}

// TestKeyedBudgetIsTheTenants: a command that outlives its connection is charged
// to the budget of those that come.
// Rules: P5.10 and P14.10.
func TestKeyedBudgetIsTheTenants(t *testing.T) {
	g := startKeyed(t, func(c *server.Config) { c.Limits.MaxBufferedInflightBytes = 64 << 10 })
	r := g.login()
	params, _ := json.Marshal(map[string]any{"command": "wait", "request_key": aKey, "stdin": map[string]string{"text": strings.Repeat("x", 60<<10)}})
	r.send(`{"jsonrpc":"2.0","id":1,"method":"exec","params":` + string(params) + `}`)
	g.await("wait")
	r.conn.Close()
	waitFor(t, func() bool { return g.released.Load() == 1 })
	r = g.login()
	p := r.call(exec(1, "grow 32768"))
	if p.Result["stdout_omitted"] == nil {
		t.Error("the stdin of the first command is not charged")
	}
	close(g.fake.release)
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"exec","params":`+string(params)+`}`, "1", 0, "")
	if p := r.call(exec(1, "grow 32768")); p.Result["stdout_omitted"] != nil {
		t.Error("it is still charged")
	}
}

// TestKeyedMintsAreBound: a token belongs to the session or the data port by
// which its mint came last.
// Rules: P14.5, P2.12.
func TestKeyedMintsAreBound(t *testing.T) {
	g := startKeyed(t, nil)
	mint := func(r *raw) (tk ticket) {
		p := r.call(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"write_file_stream","params":{"path":"f","request_key":%q}}`, aKey))
		decodeJSON(t, p.text(t, "transfer"), &tk)
		return tk
	}
	claim := func(conn net.Conn, err error, tk ticket) string {
		if err != nil {
			t.Fatal(err)
		}
		r := newRaw(t, conn)
		r.write("CTRLD1 " + tk.Token + "\n")
		return strings.TrimSpace(r.readLine())
	}
	byPort := func(tk ticket) string {
		conn, err := net.Dial("tcp", g.addr.String())
		return claim(conn, err, tk)
	}
	_, s := g.loginMux()
	stream := g.stream(s)
	muxed := mint(stream)
	if got := byPort(muxed); got != "ERR token_invalid" {
		t.Errorf("a session's token on the data port: %s", got)
	}
	stream.conn.Close() // nobody's now
	plain := g.login()
	direct := mint(plain)
	if direct.ID != muxed.ID || len(direct.Endpoints) != 1 || direct.Endpoints[0] == "mux:" {
		t.Errorf("%+v, then %+v", muxed, direct)
	}
	conn, err := s.OpenStream()
	if got := claim(conn, err, direct); got != "ERR token_invalid" {
		t.Errorf("the data port's token in a session: %s", got)
	}
	muxed = mint(g.stream(s))
	if got := byPort(direct); got != "ERR token_invalid" {
		t.Errorf("the dead token: %s", got)
	}
	conn, err = s.OpenStream()
	if got := claim(conn, err, muxed); got != strings.TrimSpace(dataport.Welcome) {
		t.Errorf("the last token: %s", got)
	}
}

// TestKeyedWriteEndsWithTheServer: Close does not wait for somebody to come back.
// Rules: P14.10.
func TestKeyedWriteEndsWithTheServer(t *testing.T) {
	g := startKeyed(t, func(c *server.Config) { c.Limits.ReconnectGrace = time.Hour })
	g.fake.writes = make(chan string, 1)
	r := g.login()
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"write_file","params":{"path":"w","content":{"text":"x"},"request_key":%q}}`, aKey))
	<-g.fake.writes
	r.conn.Close()
	g.server.Close()
}

// TestKeyedWorkEndsWithTheServer, and Close waits for it.
// Rules: P14.11.
func TestKeyedWorkEndsWithTheServer(t *testing.T) {
	g := startKeyed(t, nil)
	r := g.login()
	r.send(strings.Replace(keyedExec(1, "block"), `"request_key"`, `"detach":true,"request_key"`, 1))
	g.await("block")
	r.conn.Close()
	waitFor(t, func() bool { return g.released.Load() == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.server.Drain(ctx); err == nil {
		t.Error("drained while a command runs")
	}
	g.server.Close() // the leak check of the package sees whether it waits
}
