package integration

import (
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// TestWireTransferObject sees P10.1, P5.8 and P5.9.
func TestWireTransferObject(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	uuid := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	token := regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	seen := map[string]bool{}
	for range 20 {
		k := c.mintWrite("f")
		tr := k.minted.Result["transfer"].(obj)
		urls, _ := tr["endpoints"].([]any)
		if !uuid.MatchString(k.id) || !token.MatchString(k.token) || seen[k.token] || tr["expires_in_s"] != 30.0 ||
			len(urls) != 1 || urls[0] != d.ready.Data[0] || len(tr) != 4 {
			t.Fatalf("got %v", tr)
		}
		seen[k.token] = true
	}
}

// TestWireOneTokenOneConnection: P10.3, P10.4 and P11.3. Of 200 connections
// that present a token at once one gets it, the others a clean answer.
func TestWireOneTokenOneConnection(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	for range 5 {
		k := c.mintWrite("f")
		answers := make(chan string, 200)
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 200 {
			conn := d.connect(d.ready.Data[0])
			all.Go(func() {
				<-start
				io.WriteString(conn, "CTRLD1 "+k.token+"\n")
				line := make([]byte, 64)
				n, _ := io.ReadAtLeast(conn, line, 3)
				if string(line[:n]) != "OK\n" {
					rest, err := io.ReadAll(conn)
					line = append(line[:n], rest...)
					if err != nil {
						line = append(line, err.Error()...)
					}
					n = len(line)
				}
				answers <- string(line[:n])
				conn.Close()
			})
		}
		close(start)
		all.Wait()
		got := map[string]int{}
		for range 200 {
			got[<-answers]++
		}
		if got["OK\n"] != 1 || got["ERR token_invalid\n"] != 199 {
			t.Fatalf("got %v", got)
		}
		// The winner went away: the transfer failed, and the token is spent.
		c.call("transfer_commit", obj{"id": k.id, "bytes": 5}).want(t, -32008, "truncated")
		k.refused()
	}
}

// TestWirePreamble: P11.1, P11.2, P11.3, P11.4 and P4.16.
func TestWirePreamble(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	k := c.mintWrite("f")
	for name, preamble := range map[string]string{
		"another version": "CTRLD2 " + k.token + "\n",
		"no space":        "CTRLD1" + k.token + "\n\n",
		"a tab":           "CTRLD1\t" + k.token + "\n",
		"CR LF":           "CTRLD1 " + k.token[:42] + "\r\n",
		"no newline":      "CTRLD1 " + k.token + " ",
		"NUL":             "CTRLD1 " + k.token[:42] + "\x00\n",
		"small letters":   "Ctrld1 " + k.token + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, line := d.answerTo(preamble); line != "" {
				t.Fatalf("answered %q", line)
			}
		})
	}
	for name, token := range map[string]string{"padding": k.token[:42] + "=", "other base64": k.token[:42] + "+", "marks": strings.Repeat("!", 43)} {
		if _, line := d.answerTo("CTRLD1 " + token + "\n"); line != "ERR token_invalid\n" {
			t.Fatalf("%s: answered %q", name, line)
		}
	}
	conn, line := d.answerTo("CTRLD1 " + strings.Repeat("A", 43) + "\n")
	if rest, err := io.ReadAll(conn); line != "ERR token_invalid\n" || len(rest) > 0 || err != nil {
		t.Fatalf("a token that never was: %q, then %q, %v", line, rest, err)
	}
	// What comes behind a refused token does not eat the answer.
	conn, line = d.answerTo("CTRLD1 " + strings.Repeat("A", 43) + "\n" + strings.Repeat("payload", 50000))
	if rest, err := io.ReadAll(conn); line != "ERR token_invalid\n" || len(rest) > 0 || err != nil {
		t.Fatalf("a token that never was, with data: %q, then %q, %v", line, rest, err)
	}
	// In two pieces, with the payload behind the second.
	data := d.connect(d.ready.Data[0])
	io.WriteString(data, "CTRLD1 "+k.token[:20])
	io.WriteString(data, k.token[20:]+"\nwhole")
	ok := make([]byte, 3)
	if _, err := io.ReadFull(data, ok); err != nil || string(ok) != "OK\n" {
		t.Fatalf("answered %q, %v", ok, err)
	}
	if r := k.commit(5); r.num("bytes") != 5 || d.get("f") != "whole" {
		t.Fatalf("got %s", r.line)
	}
}

// TestWireDescriptor: P11.10. CTRLF1 is refused and costs no token.
func TestWireDescriptor(t *testing.T) {
	d := startWire(t, nil)
	k := d.login().mintWrite("f")
	for range 2 {
		conn, line := d.answerTo("CTRLF1 " + k.token + "\n")
		if rest, err := io.ReadAll(conn); line != "ERR unsupported\n" || len(rest) > 0 || err != nil {
			t.Fatalf("answered %q, then %q, %v", line, rest, err)
		}
	}
	k.open("x")
	if r := k.commit(1); r.num("bytes") != 1 {
		t.Fatalf("got %s", r.line)
	}
}

// TestWirePlanesDoNotMix: P2.4, P2.3 and P1.1.
func TestWirePlanesDoNotMix(t *testing.T) {
	def := daemon.Default()
	if def.Control[0] != "tcp://127.0.0.1:7071" || def.Data[0] != "tcp://127.0.0.1:7072" || len(def.Control)+len(def.Data) != 2 {
		t.Errorf("by default %v and %v", def.Control, def.Data)
	}
	d := startWire(t, nil)
	k := d.login().mintWrite("f")
	for name, try := range map[string][2]string{
		"a preamble on the control port": {d.ready.Control[0], "CTRLD1 " + k.token + "\n"},
		"JSON-RPC on the data port":      {d.ready.Data[0], `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"},
		"HTTP on the control port":       {d.ready.Control[0], "GET / HTTP/1.0\r\n\r\n"},
		"HTTP on the data port":          {d.ready.Data[0], "GET / HTTP/1.0\r\n\r\n"},
	} {
		conn := d.connect(try[0])
		io.WriteString(conn, try[1])
		if b, err := io.ReadAll(conn); len(b) > 0 || os.IsTimeout(err) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	k.open("")
}

// TestWireTokenExpires: P10.5.
func TestWireTokenExpires(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.TokenTTL = 100 * time.Millisecond })
	c := d.login()
	d.put("f", "old")
	for _, k := range []ticket{c.mintWrite("f"), c.mintRead("f")} {
		k.result().want(t, -32007, "token_invalid")
		k.refused()
	}
	k := c.mintWrite("f")
	k.commit(3).want(t, -32007, "token_invalid")
	if d.get("f") != "old" {
		t.Fatal("the file changed")
	}
}

// TestWireNoTokenIsTold: P10.12. Neither the log nor an error holds one.
func TestWireNoTokenIsTold(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	k := c.mintWrite("f")
	conn := k.open("abc")
	conn.reset()
	lines := k.commit(5).line + k.result().line
	lines += c.fails("transfer_result", obj{"id": k.token}, -32003, "not_found").line
	x := d.dial()
	lines += x.fails("hello", obj{"protocol": 1, "token": wireSecret + "x"}, -32001, "unauthenticated").line
	_, line := d.answerTo("CTRLD1 " + k.token + "\n")
	d.stop()
	for _, secret := range []string{k.token, wireSecret} {
		if strings.Contains(lines+line, secret) || strings.Contains(d.log.String(), secret) {
			t.Errorf("%q is told", secret)
		}
	}
	if !strings.Contains(d.log.String(), "ready") {
		t.Error("there is no log")
	}
}
