package rpc_test

import (
	"testing"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

type verdictAnswer struct {
	r   rpc.VerdictResult
	err error
}

// TestAskResultGivenUp: who gives up is told once, and not of what comes late.
func TestAskResultGivenUp(t *testing.T) {
	c, f := connect(t, rpc.ConnOptions{})
	got := make(chan verdictAnswer, 2)
	giveUp := c.AskResult("x", func(r rpc.VerdictResult, err error) { got <- verdictAnswer{r, err} })
	f.take()
	giveUp()
	giveUp()
	if a := <-got; sandbox.KindOf(a.err) != sandbox.KindOutcomeUnknown {
		t.Fatalf("%+v", a)
	}
	f.say(`{"jsonrpc":"2.0","id":1,"result":{"bytes":5}}`)
	giveUp = c.AskResult("x", func(r rpc.VerdictResult, err error) { got <- verdictAnswer{r, err} })
	f.take()
	f.say(`{"jsonrpc":"2.0","id":2,"result":{"bytes":6}}`)
	if a := <-got; a.r.Bytes != 6 || a.err != nil || len(got) > 0 {
		t.Fatalf("%+v", a)
	}
	giveUp()
	c.Close()
	if len(got) > 0 {
		t.Fatalf("told twice: %+v", <-got)
	}
}

// TestAskResult: the answer comes once, whatever it is and whenever the
// connection ends.
func TestAskResult(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string // "": the server hangs up
		bytes  int64
		kind   sandbox.Kind
	}{
		"result":  {`{"jsonrpc":"2.0","id":1,"result":{"bytes":5}}`, 5, ""},
		"error":   {`{"jsonrpc":"2.0","id":1,"error":{"code":-32008,"message":"m","data":{"kind":"aborted"}}}`, 0, sandbox.KindAborted},
		"hang up": {"", 0, sandbox.KindConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := connect(t, rpc.ConnOptions{})
			got := make(chan verdictAnswer, 2)
			c.AskResult("x", func(r rpc.VerdictResult, err error) { got <- verdictAnswer{r, err} })
			f.want(`{"jsonrpc":"2.0","id":1,"method":"transfer_result","params":{"id":"x"}}`)
			if tt.answer != "" {
				f.say(tt.answer)
			} else {
				f.conn.Close()
			}
			a := <-got
			if a.r.Bytes != tt.bytes || sandbox.KindOf(a.err) != tt.kind {
				t.Fatalf("%+v", a)
			}
			c.Close()
			c.AskResult("x", func(r rpc.VerdictResult, err error) { got <- verdictAnswer{r, err} })
			if a := <-got; sandbox.KindOf(a.err) != sandbox.KindConnectionLost || len(got) > 0 {
				t.Fatalf("after the end: %+v", a)
			}
		})
	}
}
