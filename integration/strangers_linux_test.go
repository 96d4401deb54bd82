package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// connectFrom dials a URL from a local address.
func (d *wireDaemon) connectFrom(local, url string) net.Conn {
	d.t.Helper()
	_, addr, _ := strings.Cut(url, "://")
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}, Timeout: patience}
	conn, err := dialer.DialContext(d.t.Context(), "tcp", addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// dialFrom is dial, from a local address.
func (d *wireDaemon) dialFrom(local string) *wireClient {
	d.t.Helper()
	conn := d.connectFrom(local, d.ready.Control[0])
	return &wireClient{t: d.t, d: d, conn: conn, in: bufio.NewReader(conn), kept: map[string]wireReply{}}
}

// closedAtOnce tells whether a connection ends without an answer, and before
// the 5 s in which silence would end it.
func closedAtOnce(t *testing.T, conn net.Conn) bool {
	t.Helper()
	conn.SetDeadline(time.Now().Add(3 * time.Second))
	b, err := io.ReadAll(conn)
	return len(b) == 0 && !os.IsTimeout(err)
}

var goodHello, badHello = obj{"protocol": 1, "token": wireSecret}, obj{"protocol": 1, "token": strings.Repeat("x", 43)}

// TestStrangersFailedHellos: P13.1 and P13.4.
func TestStrangersFailedHellos(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxFailedHellos = 5 })
	const bad = "127.9.0.1"
	early := d.dialFrom(bad)
	early.ok("hello", goodHello)
	for range 6 { // 5, and one drains away meanwhile or is one too many
		d.dialFrom(bad).fails("hello", badHello, -32001, "unauthenticated")
	}
	c := d.dialFrom(bad)
	c.ok("ping", nil)
	r := c.fails("hello", goodHello, -32009, "resource_exhausted")
	if wait, _ := r.Error.Data["retry_after_s"].(float64); wait <= 0 || wait > 1 || r.Error.Data["limit"] != 5.0 {
		t.Fatalf("got %s", r.line)
	}
	c.closed()
	early.ok("stat", obj{"path": "."})
	d.dialFrom("127.9.0.2").ok("hello", goodHello)
	d.login()
	await(t, "the end of the penalty", func() bool { return d.dialFrom(bad).call("hello", goodHello).Error == nil })
}

// TestStrangersMayFailSafely: by default nobody who mistypes is kept out, and
// with 0 nobody at all.
func TestStrangersMayFailSafely(t *testing.T) {
	for name, n := range map[string]int{"default": 90, "0": 300} {
		t.Run(name, func(t *testing.T) {
			d := startWire(t, func(c *daemon.Config) {
				if name == "0" {
					c.MaxFailedHellos = 0
				}
			})
			for range n {
				d.dial().fails("hello", badHello, -32001, "unauthenticated")
			}
			d.login()
		})
	}
}

// TestStrangersGuessTokens: P13.5. Guessing is stopped; a token that belongs to
// a transfer, whatever became of it, is no guess.
func TestStrangersGuessTokens(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxFailedTokens = 20 })
	const bad = "127.9.0.1"
	say := func(local, token string) net.Conn {
		conn := d.connectFrom(local, d.ready.Data[0])
		io.WriteString(conn, "CTRLD1 "+token+"\n")
		return conn
	}
	wrong := func(local, token string) {
		t.Helper()
		if b, err := io.ReadAll(say(local, token)); string(b) != "ERR token_invalid\n" || err != nil {
			t.Fatalf("answered %q, %v", b, err)
		}
	}
	c := d.login()
	k := c.mintWrite("f")
	k.open("x")
	k.commit(1)
	for range 100 {
		wrong(bad, k.token)
	}
	for range 21 {
		wrong(bad, strings.Repeat("A", 43))
	}
	again := c.mintWrite("f")
	if !closedAtOnce(t, say(bad, again.token)) {
		t.Error("a guesser is still answered")
	}
	d.dialFrom(bad).ok("hello", goodHello) // the control plane is another door
	again.open("y")
	if r := again.commit(1); r.num("bytes") != 1 {
		t.Fatalf("got %s", r.line)
	}
	third := c.mintWrite("f")
	await(t, "the end of the penalty", func() bool {
		b, _ := io.ReadAll(io.LimitReader(say(bad, third.token), 3))
		return string(b) == "OK\n"
	})
}

// TestStrangersFailedHandshakes: P13.6.
func TestStrangersFailedHandshakes(t *testing.T) {
	x := startTrust(t, true, func(c *daemon.Config) { c.MaxFailedHandshakes = 5 })
	mine := x.ca.client("acme", "")
	c := x.enter(mine)
	for range 6 {
		if line, err := x.try(x.ready.Control[0], x.config(), pingLine); line != "" || err == nil {
			t.Fatalf("let in without a certificate: %q", line)
		}
	}
	for _, url := range []string{x.ready.Control[0], x.ready.Data[0]} {
		// The peer hears of a failure before it is counted.
		await(t, "the penalty", func() bool { _, err := x.shake(url, x.config(mine)); return err != nil })
	}
	c.ok("stat", obj{"path": "."})
	await(t, "the end of the penalty", func() bool {
		line, _ := x.try(x.ready.Control[0], x.config(mine), pingLine)
		return line == pong
	})
}

// TestStrangersAreFew: P13.2 and P13.3. Silent connections of a few sources
// keep no other from saying hello, on either plane.
func TestStrangersAreFew(t *testing.T) {
	for _, plane := range []string{"control", "data"} {
		t.Run(plane, func(t *testing.T) {
			d := startWire(t, func(c *daemon.Config) { c.MaxUnauthenticated, c.MaxUnauthenticatedEach = 20, 8 })
			url, begin := d.ready.Control[0], "{"
			if plane == "data" {
				url, begin = d.ready.Data[0], "C"
			}
			c := d.login()
			one := func(local string) net.Conn {
				conn := d.connectFrom(local, url)
				io.WriteString(conn, begin)
				return conn
			}
			// Whoever has authenticated is no stranger, on either plane.
			for range 10 {
				d.login()
				k := c.mintWrite("many")
				k.open("many")
			}
			var first []net.Conn
			for range 8 {
				first = append(first, one("127.9.0.1"))
			}
			if !closedAtOnce(t, one("127.9.0.1")) {
				t.Fatal("a ninth of one source was answered")
			}
			for i := range 40 {
				one(fmt.Sprint("127.9.0.", 2+i%4))
			}
			// Everything is taken, and still there is a place.
			d.login().ok("stat", obj{"path": "."})
			if !closedAtOnce(t, first[7]) {
				t.Error("the newest of the source with most is still in")
			}
			k := c.mintWrite("f")
			k.open("honest")
			if r := k.commit(6); r.num("bytes") != 6 {
				t.Fatalf("got %s", r.line)
			}
			if n := adminMetric(t, d, "controld_unauthenticated_connections"); n > 20 {
				t.Errorf("%v strangers", n)
			}
			for _, conn := range first {
				conn.Close()
			}
		})
	}
}

// adminMetric reads a sample of a daemon in this process.
func adminMetric(t *testing.T, d *wireDaemon, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + strings.TrimPrefix(d.ready.Admin, "tcp://") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no metric %s in %s", name, text)
	return 0
}

// TestStrangersFromNetworks: P1.15.
func TestStrangersFromNetworks(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) {
		c.Data, c.InsecureDataFrom = []string{"tcp://0.0.0.0:0"}, []string{"127.0.0.1/32", "127.1.0.0/16"}
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(d.ready.Data[0], "tcp://"))
	for local, in := range map[string]bool{"127.0.0.1": true, "127.1.2.3": true, "127.9.0.1": false} {
		conn := d.connectFrom(local, "tcp://127.0.0.1:"+port)
		io.WriteString(conn, "CTRLD1 "+strings.Repeat("A", 43)+"\n")
		if b, _ := io.ReadAll(conn); (string(b) == "ERR token_invalid\n") != in {
			t.Errorf("%s: answered %q", local, b)
		}
	}
	if n := strings.Count(d.log.String(), "in the clear"); n != 1 {
		t.Errorf("%d warnings in\n%s", n, d.log)
	}
	if adminMetric(t, d, "controld_insecure_data_networks") != 2 || adminMetric(t, d, `controld_connections_refused_total{reason="peer"}`) != 1 {
		t.Error("the metrics do not tell")
	}
	r := d.dial().ok("hello", goodHello)
	if !strings.Contains(r.line, `"plain_data"`) {
		t.Errorf("got %s", r.line)
	}
	for name, adjust := range map[string]func(*daemon.Config){
		"control in the clear": func(c *daemon.Config) { c.Control = []string{"tcp://0.0.0.0:0"} },
		"admin in the clear":   func(c *daemon.Config) { c.Admin = "tcp://0.0.0.0:0" },
		"no network":           func(c *daemon.Config) { c.InsecureDataFrom = []string{"127.0.0.1"} },
	} {
		cfg := d.cfg
		adjust(&cfg)
		if err := cfg.Check(); err == nil {
			t.Errorf("%s is no mistake", name)
		}
	}
}
