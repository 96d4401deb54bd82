package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/rpc/server"
)

func exec(id int, command string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"exec","params":{"command":%q}}`, id, command)
}

func cancelLine(id string) string {
	return `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":` + id + `}}`
}

// TestIDInFlight holds P3.13, P3.18 and P3.24.
func TestIDInFlight(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	r.send(exec(1, "wait"))
	g.await("wait")
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "null", -32600, "invalid_request")
	r.expect(`{"jsonrpc":"2.0","id":"1","method":"ping"}`, `"1"`, 0, "")
	r.expect(`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, "null", -32600, "invalid_request")
	r.expect(`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `1.5`, 0, "")
	close(g.fake.release)
	if p := r.reply(); string(p.ID) != "1" || p.Error != nil {
		t.Fatalf("got %+v", p)
	}
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
}

// TestNotifications holds P3.19 and P3.22.
func TestNotifications(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	r.send(
		`{"jsonrpc":"2.0","method":"write_file","params":{"path":"n","content":{"text":"x"}}}`,
		`{"jsonrpc":"2.0","method":"nope"}`,
		`{"jsonrpc":"2.0","method":"stat","params":5}`,
		`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":77}}`,
		`{"jsonrpc":"2.0","method":"$/cancelRequest"}`,
		`[{"jsonrpc":"2.0","method":"ping"}]`,
	)
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
	if _, err := g.fake.get("", "n"); err == nil {
		t.Fatal("a notification was executed")
	}
}

// TestCancel holds P4.8.
func TestCancel(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	r.send(`{"jsonrpc":"2.0","id":"a\u0062","method":"exec","params":{"command":"block"}}`)
	g.await("block")
	r.send(cancelLine(`"aB"`)) // another id
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
	r.send(cancelLine(`"ab"`)) // the same, written otherwise
	if p := r.reply(); string(p.ID) != `"a\u0062"` || p.code() != -32800 || p.kind() != "cancelled" {
		t.Fatalf("got %+v", p)
	}
	// As a call it is answered too, whether it found something or not.
	r.send(exec(5, "block"))
	g.await("block")
	r.send(`{"jsonrpc":"2.0","id":6,"method":"$/cancelRequest","params":{"id":5}}`)
	got := map[string]int{}
	for range 2 {
		p := r.reply()
		got[string(p.ID)] = p.code()
	}
	if got["5"] != -32800 || got["6"] != 0 || len(got) != 2 {
		t.Fatalf("got %v", got)
	}
	r.expect(`{"jsonrpc":"2.0","id":6,"method":"$/cancelRequest","params":{"id":5}}`, "6", 0, "")
}

// TestCancelPastNoReturn: the normal answer is given.
// Rules: P4.13.
func TestCancelPastNoReturn(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	r.send(exec(1, "stubborn"))
	g.await("stubborn")
	r.send(cancelLine("1"))
	r.expect(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, "2", 0, "")
	close(g.fake.release)
	if p := r.reply(); p.Error != nil || p.text(t, "stdout") != `{"text":"released"}` {
		t.Fatalf("got %+v", p)
	}
}

// fill starts n commands that wait and awaits them.
func (g *rig) fill(r *raw, n int) {
	for i := range n {
		r.send(exec(1000+i, "wait"))
		g.await("wait")
	}
}

// TestInflightAndQueue holds P4.1, P4.2, P4.3 and P6.4.
func TestInflightAndQueue(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxInflight, c.Limits.MaxQueued = 4, 3 })
	r := g.login()
	g.fill(r, 4)
	for i := range 3 {
		r.send(exec(2000+i, "wait"))
	}
	p := r.expect(exec(3000, "wait"), "3000", -32009, "resource_exhausted")
	if p.Error.Data["limit"] != 3.0 || p.Error.Data["retry_after_s"] == nil {
		t.Fatalf("data %v", p.Error.Data)
	}
	// Uncounted ones never wait; a queued call can be cancelled.
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
	r.expect(`{"jsonrpc":"2.0","id":2,"method":"transfer_abort","params":{"id":"x"}}`, "2", -32003, "not_found")
	r.send(cancelLine("2001"))
	if p := r.reply(); string(p.ID) != "2001" || p.code() != -32800 {
		t.Fatalf("got %+v", p)
	}
	select {
	case c := <-g.fake.started:
		t.Fatalf("%s runs beyond the limit", c)
	default:
	}
	close(g.fake.release)
	for range 6 {
		if p := r.reply(); p.Error != nil {
			t.Fatalf("got %+v", p.Error)
		}
	}
}

// TestQueueOrder: waiting calls start in order of arrival.
// Rules: P4.1.
func TestQueueOrder(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxInflight = 1 })
	r := g.login()
	r.send(exec(1, "wait"))
	g.await("wait")
	for i := range 20 {
		r.send(exec(100+i, fmt.Sprintf("echo %d", i)))
	}
	close(g.fake.release)
	r.reply()
	for i := range 20 {
		if p := r.reply(); p.text(t, "stdout") != fmt.Sprintf(`{"text":"%d"}`, i) {
			t.Fatalf("answer %d is %v", i, p)
		}
	}
}

// TestQueuedText holds P4.2.
func TestQueuedText(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxInflight, c.Limits.MaxMessageBytes = 1, 64<<10 })
	r := g.login()
	r.send(exec(1, "wait"))
	g.await("wait")
	long := strings.Repeat("a", 30<<10)
	r.send(exec(2, long), exec(3, long))
	p := r.expect(exec(4, long), "4", -32009, "resource_exhausted")
	if p.Error.Data["limit"] != float64(64<<10) {
		t.Fatalf("data %v", p.Error.Data)
	}
	close(g.fake.release)
	for range 3 {
		r.reply()
	}
	r.send(exec(4, long)) // the text is given back
	if p := r.reply(); p.Error != nil {
		t.Fatalf("got %+v", p.Error)
	}
}

// TestLineTooLong holds P3.7 and P4.16.
func TestLineTooLong(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxMessageBytes = 64 << 10 })
	r := g.login()
	r.send(exec(9, "block"))
	g.await("block")
	r.expect(exec(1, "echo "+strings.Repeat("a", 40<<10)), "1", 0, "")
	r.send(exec(1, strings.Repeat("a", 200<<10)))
	got := map[string]string{}
	for range 2 {
		p := r.reply()
		got[string(p.ID)] = p.kind()
	}
	if got["null"] != "message_too_large" || got["9"] != "cancelled" {
		t.Fatalf("got %v", got)
	}
	r.closedCleanly()
}

// TestReplyTooLarge holds P3.8.
func TestReplyTooLarge(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxMessageBytes = 64 << 10 })
	r := g.login()
	p := r.expect(exec(1, "out 70000"), "1", -32005, "too_large")
	if p.Error.Data["limit"] != float64(64<<10) {
		t.Fatalf("data %v", p.Error.Data)
	}
	r.expect(exec(2, "out 60000"), "2", 0, "")
}

// TestBatch holds P3.19, P3.20 and P3.21.
func TestBatch(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxMessageBytes = 64 << 10 })
	r := g.login()
	batch := func(calls ...string) []reply {
		t.Helper()
		r.send("[" + strings.Join(calls, ",") + "]")
		var out []reply
		r.parse(r.line(), &out)
		return out
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	got := batch(ping, `5`, `{"jsonrpc":"2.0","method":"ping"}`, `[]`, exec(2, "echo x"), exec(2, "echo y"), `{"jsonrpc":"2.0","id":3,"method":"nope"}`)
	codes := map[string][]int{}
	for _, p := range got {
		codes[string(p.ID)] = append(codes[string(p.ID)], p.code())
	}
	if len(got) != 6 || len(codes["null"]) < 2 || codes["3"][0] != -32601 || codes["1"][0] != 0 {
		t.Fatalf("got %v", codes)
	}
	many := strings.Split(strings.Repeat(ping+"\n", 64), "\n")[:64]
	for i := range many {
		many[i] = strings.Replace(many[i], ":1,", fmt.Sprintf(":%d,", i), 1)
	}
	if got := batch(many...); len(got) != 64 {
		t.Fatalf("%d answers", len(got))
	}
	r.expect("["+strings.Join(append(many, ping), ",")+"]", "null", -32600, "invalid_request")
	r.expect(`[{"jsonrpc":"2.0","id":1,"method":"ping"},]`, "null", -32700, "parse_error")

	// What does not fit is too_large, each; the line stays within the limit.
	calls := make([]string, 4)
	for i := range calls {
		calls[i] = exec(i, "out 25000")
	}
	r.send("[" + strings.Join(calls, ",") + "]")
	line := r.line()
	var replies []reply
	r.parse(line, &replies)
	fit := 0
	for _, p := range replies {
		if p.Error == nil {
			fit++
		} else if p.kind() != "too_large" {
			t.Fatalf("got %+v", p.Error)
		}
	}
	if len(replies) != 4 || fit != 2 || len(line) > 64<<10 {
		t.Fatalf("%d answers, %d fit, %d bytes", len(replies), fit, len(line))
	}
}

// TestEOF: the client is gone; its calls are cancelled.
// Rules: P4.14.
func TestEOF(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxInflight = 1 })
	r := g.login()
	r.send(exec(1, "block"), exec(2, "block"))
	g.await("block")
	r.conn.(interface{ CloseWrite() error }).CloseWrite()
	for range 2 {
		if p := r.reply(); p.code() != -32800 {
			t.Fatalf("got %+v", p)
		}
	}
	r.closed()
	waitFor(t, func() bool { return g.released.Load() == 1 })
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// TestEpochEnds holds P7.12, P6.3 and P6.5.
func TestEpochEnds(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxInflight = 1 })
	defer close(g.fake.release) // also where the test fails: the server waits for the command
	a, b := g.login(), g.login()
	a.send(exec(1, "stubborn"), exec(2, "wait"))
	g.await("stubborn")
	a.expect(`{"jsonrpc":"2.0","id":3,"method":"ping"}`, "3", 0, "")
	close(g.epoch)
	for range 2 {
		p := a.reply()
		if p.kind() != "unavailable" || p.Error.Data["reason"] != "sandbox_restarted" || p.Error.Data["outcome"] != "unknown" {
			t.Fatalf("got %+v", p.Error)
		}
	}
	a.closed()
	b.closed()
}

// TestPanic holds P6.6.
func TestPanic(t *testing.T) {
	logged := make(chan string, 1)
	g := start(t, func(c *server.Config) {
		c.Log = func(m string, pairs ...any) { logged <- fmt.Sprint(m, pairs) }
	})
	r := g.login()
	p := r.expect(exec(1, "panic"), "1", -32603, "internal")
	if p.Error.Data["outcome"] != "unknown" || strings.Contains(p.Error.Message, "boom") {
		t.Fatalf("got %+v", p.Error)
	}
	_, incident, _ := strings.Cut(p.Error.Message, "incident ")
	if line := <-logged; !strings.Contains(line, "boom") || !strings.Contains(line, incident) || len(incident) != 36 {
		t.Fatalf("log %q, incident %q", clip(line), incident)
	}
	r.expect(exec(1, "echo x"), "1", 0, "")
}

// TestDrain holds P12.2 and P12.3.
func TestDrain(t *testing.T) {
	g := start(t, nil)
	r, late := g.login(), g.dial()
	r.send(exec(1, "wait"))
	g.await("wait")
	drained := make(chan error, 1)
	go func() { drained <- g.server.Drain(context.Background()) }()
	waitFor(t, func() bool {
		return r.call(exec(2, "echo x")).kind() == "unavailable"
	})
	p := r.expect(exec(2, "echo x"), "2", -32009, "unavailable")
	if p.Error.Data["reason"] != "draining" || p.Error.Data["outcome"] != "none" {
		t.Fatalf("got %+v", p.Error)
	}
	if p := late.call(helloLine); p.Error == nil || p.Error.Data["reason"] != "draining" {
		t.Fatalf("got %+v", p)
	}
	r.expect(`{"jsonrpc":"2.0","id":3,"method":"transfer_result","params":{"id":"x"}}`, "3", -32003, "not_found")
	select {
	case <-drained:
		t.Fatal("drained with a call running")
	default:
	}
	close(g.fake.release)
	if p := r.reply(); p.Error != nil {
		t.Fatalf("got %+v", p.Error)
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
}

// TestDrainTimeout holds P12.5.
func TestDrainTimeout(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	r.send(exec(1, "block"))
	g.await("block")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.server.Drain(ctx); err == nil {
		t.Fatal("drained")
	}
	if p := r.reply(); p.kind() != "unavailable" || p.Error.Data["reason"] != "draining" {
		t.Fatalf("got %+v", p.Error)
	}
	r.closed()
}

// TestCloseEndsAll: Close returns with calls running and connections open.
func TestCloseEndsAll(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	g.dial()
	r.send(exec(1, "block"))
	g.await("block")
	g.server.Close()
	r.closed()
}
