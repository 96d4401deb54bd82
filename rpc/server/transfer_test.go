package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/controld/controld/rpc/server"
)

type ticket struct {
	ID, Token string
	Endpoints []string
}

func (r *raw) mint(method, path string) ticket {
	r.t.Helper()
	p := r.call(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"path":%q}}`, method, path))
	var tk ticket
	decodeJSON(r.t, p.text(r.t, "transfer"), &tk)
	return tk
}

func commitLine(id int, tk ticket) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"transfer_commit","params":{"id":%q,"bytes":5}}`, id, tk.ID)
}

// TestBlockedCommits: 128 commits that wait take no place of calls, and an
// abort works.
// Rules: P4.3.
func TestBlockedCommits(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	tickets := make([]ticket, 128)
	for i := range tickets {
		tickets[i] = r.mint("write_file_stream", fmt.Sprintf("f%d", i))
	}
	for i, tk := range tickets {
		r.send(commitLine(100+i, tk))
	}
	g.fill(r, 128) // all places are free
	r.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"transfer_abort","params":{"id":%q}}`, "no id"), "2", -32003, "not_found")
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"transfer_abort","params":{"id":%q}}`, tickets[7].ID))
	got := map[string]string{}
	for range 2 {
		p := r.reply()
		got[string(p.ID)] = p.kind()
	}
	if got["107"] != "aborted" || got["2"] != "" || len(got) != 2 {
		t.Fatalf("got %v", got)
	}
	close(g.fake.release)
	for range 128 {
		r.reply()
	}
}

// TestCancelWithFullQueue: cancels are read and act whatever waits.
// Rules: P4.5 and P4.2.
func TestCancelWithFullQueue(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	g.fill(r, 128)
	for i := range 1024 {
		r.send(exec(5000+i, "wait"))
	}
	r.expect(exec(9999, "wait"), "9999", -32009, "resource_exhausted")
	r.send(cancelLine("5500"), cancelLine("1000"))
	got := map[string]int{}
	for range 2 {
		p := r.reply()
		got[string(p.ID)] = p.code()
	}
	if got["5500"] != -32800 || got["1000"] != -32800 {
		t.Fatalf("got %v", got)
	}
	close(g.fake.release)
	for range 127 + 1023 {
		if p := r.reply(); p.Error != nil {
			t.Fatalf("got %+v", p.Error)
		}
	}
}

// TestWaitingTransfersLimit holds P4.4 and P4.11.
func TestWaitingTransfersLimit(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxWaitingTransfers = 2 })
	r := g.login()
	tk := r.mint("read_file_stream", "hello.txt")
	line := `{"jsonrpc":"2.0","id":%d,"method":"transfer_result","params":{"id":"` + tk.ID + `"}}`
	r.send(fmt.Sprintf(line, 1), fmt.Sprintf(line, 2))
	p := r.expect(fmt.Sprintf(line, 3), "3", -32009, "resource_exhausted")
	if p.Error.Data["limit"] != 2.0 {
		t.Fatalf("data %v", p.Error.Data)
	}
	// Cancelling ends the waiting alone.
	r.send(cancelLine("1"))
	if p := r.reply(); string(p.ID) != "1" || p.code() != -32800 {
		t.Fatalf("got %+v", p)
	}
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":4,"method":"transfer_abort","params":{"id":%q}}`, tk.ID))
	got := map[string]string{}
	for range 2 {
		p := r.reply()
		got[string(p.ID)] = p.kind()
	}
	if got["2"] != "aborted" || got["4"] != "" {
		t.Fatalf("got %v", got)
	}
}

// TestMintDiesWithConnection: other connections of the tenant can ask what
// became of it, other tenants' ids do not exist.
// Rules: P10.6, P10.8 and P6.9.
func TestMintDiesWithConnection(t *testing.T) {
	g := start(t, nil)
	a, b := g.login(), g.login()
	tk := a.mint("write_file_stream", "f")
	ask := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"transfer_result","params":{"id":%q}}`, tk.ID)
	b.send(ask)
	a.conn.Close()
	if p := b.reply(); p.kind() != "aborted" || p.Error.Data["outcome"] != "none" {
		t.Fatalf("got %+v", p.Error)
	}
	other := g.dial()
	other.call(hello(`{"protocol":1,"token":"good","sandbox":"other"}`))
	other.expect(ask, "1", -32003, "not_found")
}

// TestInlineMax holds P8.22.
func TestInlineMax(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	g.fake.put("f", []byte(strings.Repeat("x", 1000)))
	p := r.call(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"f","inline_max":1000}}`)
	p.text(t, "content")
	p = r.call(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"f","inline_max":999,"offset":0}}`)
	if p.text(t, "length") != "1000" || p.text(t, "size") != "1000" || p.text(t, "etag") != `"r1"` {
		t.Fatalf("got %v", p.Result)
	}
	if _, both := p.Result["content"]; both {
		t.Fatal("content and transfer")
	}
	var tk ticket
	decodeJSON(t, p.text(t, "transfer"), &tk)
	if len(tk.Token) != 43 {
		t.Fatalf("got %+v", tk)
	}
}
