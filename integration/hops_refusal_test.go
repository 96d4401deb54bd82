package integration

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
)

// refusedConn is a connection on which every token is refused, as one is that
// expired on its way. What is said on the control plane passes.
type refusedConn struct {
	net.Conn
	answer *bytes.Reader // once a token was presented
}

func (c *refusedConn) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("CTRLD1 ")) {
		c.answer = bytes.NewReader([]byte("ERR token_invalid\n"))
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *refusedConn) Read(p []byte) (int, error) {
	if c.answer != nil {
		return c.answer.Read(p)
	}
	return c.Conn.Read(p)
}

// TestInnerRefusalReachesTheFirstHop: a hop says OK behind the next one's, so
// that a transfer which the last hop refuses is open on none.
func TestInnerRefusalReachesTheFirstHop(t *testing.T) {
	url := served(t, &recorder{seen: map[string]any{}})
	between, err := adapter.New(adapter.Options{Control: url, Token: "x", Dial: func(ctx context.Context, e dataport.Endpoint) (net.Conn, error) {
		conn, err := dataport.Dialer{}.Dial(ctx, e)
		return &refusedConn{Conn: conn}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { between.Close() })
	first := hop(t, between)
	for name, open := range map[string]func() error{
		"a write": func() error {
			sink, err := first.OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
			if err == nil {
				sink.Abort(nil)
			}
			return err
		},
		"a read": func() error {
			src, err := first.OpenRead(t.Context(), "f", sandbox.ReadOptions{})
			if err == nil {
				src.Close()
			}
			return err
		},
		"a whole write": func() error {
			_, err := first.WriteFileStream(t.Context(), "f", io.LimitReader(strings.NewReader("text"), 4), sandbox.WriteOptions{})
			return err
		},
	} {
		if got := sandbox.KindOf(open()); got != sandbox.KindTokenInvalid {
			t.Errorf("%s: kind %q, want %q", name, got, sandbox.KindTokenInvalid)
		}
	}
}
