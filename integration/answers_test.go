package integration

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/controld/controld/sandbox"
)

// TestErrorsNameTheMethodThatWasCalled, whichever open served it.
func TestErrorsNameTheMethodThatWasCalled(t *testing.T) {
	p := newPlace(t)
	c := dialControl(t, p.start(t))
	c.hello(p)
	for _, method := range []string{"read_file", "read_file_buffer", "read_file_stream", "stat", "readdir", "rm"} {
		c.say(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"path":"none"}}`, method)
		r := c.hear()
		if r.Error == nil || r.Error.Data["op"] != method || r.Error.Data["path"] != "none" || r.Error.Message != method+" none: no such file or directory" {
			t.Errorf("%s: %+v", method, r.Error)
		}
	}
}

// TestErrorsOfTransfersNameMethodAndPath.
func TestErrorsOfTransfersNameMethodAndPath(t *testing.T) {
	p := newPlace(t)
	c := dialControl(t, p.start(t, "--token-ttl", "50ms"))
	c.hello(p)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"write_file_stream","params":{"path":"f"}}`)
	id := c.hear().Result["transfer"].(map[string]any)["id"]
	c.say(`{"jsonrpc":"2.0","id":2,"method":"transfer_result","params":{"id":%q}}`, id)
	if r := c.hear(); r.Error == nil || r.Error.Data["kind"] != "token_invalid" || r.Error.Data["op"] != "write_file_stream" || r.Error.Data["path"] != "f" {
		t.Errorf("%+v", r.Error)
	}
}

// TestSecondHelloIsNoRequest, whatever its params.
func TestSecondHelloIsNoRequest(t *testing.T) {
	p := newPlace(t)
	c := dialControl(t, p.start(t))
	c.hello(p)
	for _, params := range []string{`{}`, `[]`, `{"protocol":2}`, `{"protocol":1,"token":"x"}`} {
		for _, format := range []string{`{"jsonrpc":"2.0","id":1,"method":"hello","params":%s}`, `[{"jsonrpc":"2.0","id":1,"method":"hello","params":%s}]`} {
			c.say(format, params)
			line, err := c.lines.ReadString('\n')
			if err != nil || !strings.Contains(line, "-32600") {
				t.Errorf("hello %s: %s%v", params, line, err)
			}
		}
	}
}

// TestInlineMaxHoldsForFilesOfNoSize: what turns out longer comes as a transfer.
func TestInlineMaxHoldsForFilesOfNoSize(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	c := dialControl(t, d)
	c.hello(p)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"/proc/version","inline_max":5}}`)
	r := c.hear()
	want, err := os.ReadFile("/proc/version")
	if err != nil || r.Result["transfer"] == nil || r.Result["length"] != float64(len(want)) {
		t.Fatalf("%+v, %v", r, err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.ready.Data[0], "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CTRLD1 %s\n", r.Result["transfer"].(map[string]any)["token"])
	got := make([]byte, 3+len(want))
	for n := 0; n < len(got); {
		m, err := conn.Read(got[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	if string(got) != "OK\n"+string(want) {
		t.Errorf("got %q", got)
	}
}

// TestTheCwdIsMadeAgain: a command may remove it; the next hello has it back.
func TestTheCwdIsMadeAgain(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	sb := p.client(t, d)
	ran(t, sb, `rmdir "$HOME"`, sandbox.ExecOptions{})
	if _, err := p.client(t, d).Stat(t.Context(), ".", sandbox.StatOptions{}); err != nil {
		t.Error(err)
	}
}

// TestTheFirstCommitCounts, in the order of arrival.
func TestTheFirstCommitCounts(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	c := dialControl(t, d)
	c.hello(p)
	for range 50 {
		c.say(`{"jsonrpc":"2.0","id":1,"method":"write_file_stream","params":{"path":"f"}}`)
		tr := c.hear().Result["transfer"].(map[string]any)
		var lines []string
		for i, n := range []int{3, 3, 4} {
			lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"transfer_commit","params":{"id":%q,"bytes":%d}}`, i+1, tr["id"], n))
		}
		c.say("%s", strings.Join(lines, "\n"))
		if r := c.hear(); string(r.ID) != "3" || r.Error == nil || r.Error.Code != -32602 {
			t.Fatalf("%s: %+v", r.ID, r)
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.ready.Data[0], "tcp://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "CTRLD1 %s\nabc", tr["token"])
		for range 2 {
			if r := c.hear(); r.Error != nil || r.Result["bytes"] != 3.0 {
				t.Fatalf("%s: %+v", r.ID, r.Error)
			}
		}
		conn.Close()
	}
}

// TestMoreThanAnyDiskHolds is refused at the mint.
func TestMoreThanAnyDiskHolds(t *testing.T) {
	p := newPlace(t)
	c := dialControl(t, p.start(t))
	c.hello(p)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"write_file_stream","params":{"path":"f","size":4503599627370496}}`)
	if r := c.hear(); r.Error == nil || r.Error.Data["kind"] != "no_space" {
		t.Errorf("%+v", r)
	}
}
