package server_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/controld/controld/rpc/server"
)

// statLine is a call that the reader of a connection does by itself.
func statLine(id int, path string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"stat","params":{"path":%q}}`, id, path)
}

// warm makes so many calls that the reader begins to do them by itself.
func (g *rig) warm(r *raw) {
	for range 20 {
		r.expect(statLine(0, "hello.txt"), "0", 0, "")
	}
}

// TestHeldUpReader: a call that the reader does by itself and that hangs holds
// up neither what comes behind it nor its own cancel; so again behind it.
func TestHeldUpReader(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	g.warm(r)
	for id := 1; id < 30; id += 10 {
		r.send(statLine(id, "wait"))
		g.await("stat wait")
		r.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id+1), fmt.Sprint(id+1), 0, "")
		r.send(cancelLine(fmt.Sprint(id)))
		g.await("cancelled")
		if p := r.reply(); string(p.ID) != fmt.Sprint(id) || p.kind() != "cancelled" {
			t.Fatalf("got %+v", p)
		}
		r.expect(statLine(id+2, "hello.txt"), fmt.Sprint(id+2), 0, "")
	}
}

// TestHeldUpReaderEnds: the end of a connection cancels its calls, also the one
// that holds up its reader, and whatever else that one does.
func TestHeldUpReaderEnds(t *testing.T) {
	for name, end := range map[string]func(*rig, *raw){
		"client": func(_ *rig, r *raw) { r.conn.Close() },
		"epoch":  func(g *rig, _ *raw) { close(g.epoch) },
		"server": func(g *rig, _ *raw) { go g.server.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, nil)
			r := g.login()
			g.warm(r)
			r.send(statLine(1, "stubborn"))
			g.await("stat stubborn")
			r.send(exec(2, "block")) // read by the relief
			g.await("block")
			r.send(statLine(3, "wait"))
			g.await("stat wait")
			end(g, r)
			g.await("cancelled")
			close(g.fake.release)
			g.server.Close()
			if n := g.released.Load(); n != 1 {
				t.Errorf("the session was released %d times", n)
			}
		})
	}
}

// TestWaitingForTransfersCostsNoGoroutine: who asks for the end of a transfer
// is answered by whoever ends it.
func TestWaitingForTransfersCostsNoGoroutine(t *testing.T) {
	const calls = 500
	g := start(t, func(c *server.Config) { c.Limits.MaxWaitingTransfers = calls })
	r := g.login()
	tk := r.mint("read_file_stream", "hello.txt")
	before := runtime.NumGoroutine()
	for id := range calls {
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"transfer_result","params":{"id":%q}}`, 100+id, tk.ID))
	}
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
	if n := runtime.NumGoroutine() - before; n > calls/10 {
		t.Errorf("%d goroutines more for %d calls that wait", n, calls)
	}
	for id := range calls / 2 {
		r.send(cancelLine(fmt.Sprint(100 + id)))
	}
	kinds := map[string]int{}
	for range calls / 2 {
		kinds[r.reply().kind()]++
	}
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"transfer_abort","params":{"id":%q}}`, tk.ID))
	for range calls/2 + 1 {
		kinds[r.reply().kind()]++
	}
	if kinds["cancelled"] != calls/2 || kinds["aborted"] != calls/2 || kinds[""] != 1 {
		t.Fatalf("got %v", kinds)
	}
	r.expect(`{"jsonrpc":"2.0","id":3,"method":"ping"}`, "3", 0, "") // and no answer more
}
