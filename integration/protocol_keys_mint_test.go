package integration

import (
	"os"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// TestWireKeyedWriteMint: P14.5. The transfer is the same, the token is new, and
// the transfer is the last connection's.
func TestWireKeyedWriteMint(t *testing.T) {
	d := startWire(t, nil)
	c, other := d.login(), d.login()
	params := withKey(obj{"path": "f"})
	first := c.mint("write_file_stream", params)
	second := other.mint("write_file_stream", params)
	third := c.mint("write_file_stream", params)
	if first.id != second.id || first.id != third.id || first.token == second.token || second.token == third.token {
		t.Fatalf("%s\n%s\n%s", first.minted.line, second.minted.line, third.minted.line)
	}
	first.refused()
	second.refused()
	other.fails("write_file_stream", with(params, obj{"path": "g"}), -32006, "conflict")
	other.conn.Close()
	third.open("data")
	c.fails("write_file_stream", params, -32006, "conflict")
	if r := third.commit(4); r.Error != nil || d.get("f") != "data" {
		t.Fatal(r.line)
	}
	c.fails("write_file_stream", params, -32006, "conflict")
}

// TestWireKeyedMintOutlivesItsConnection: P14.5 and, behind the claim, P10.6.
func TestWireKeyedMintOutlivesItsConnection(t *testing.T) {
	d := startWire(t, nil)
	d.login().writeFile("r", "content")
	for method, params := range map[string]obj{"write_file_stream": {"path": "w"}, "read_file_stream": {"path": "r"}} {
		params = withKey(params)
		c := d.login()
		lost := c.mint(method, params)
		plain := c.mint(method, obj{"path": "r"})
		c.conn.Close()
		c = d.login()
		plain.c, lost.c = c, c
		plain.result().want(t, -32008, "aborted") // so the connection is gone
		lost.refused()
		found := c.mint(method, params)
		if found.id != lost.id {
			t.Fatalf("%s: %s, then %s", method, lost.minted.line, found.minted.line)
		}
		if method == "read_file_stream" {
			if found.minted.Result["length"] != 7.0 || found.minted.Result["etag"] != lost.minted.Result["etag"] {
				t.Errorf("%s, then %s", lost.minted.line, found.minted.line)
			}
			conn := found.open("")
			got := make([]byte, 7)
			if _, err := conn.Read(got); err != nil || string(got) != "content" {
				t.Errorf("got %q, %v", got, err)
			}
			continue
		}
		conn := found.open("data")
		c.conn.Close()
		conn.wasReset()
		found.c = d.login()
		found.result().want(t, -32008, "aborted")
		found.c.fails(method, params, -32006, "conflict")
	}
}

// TestWireKeyedMintExpires: P14.5. Nobody came back for it.
func TestWireKeyedMintExpires(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.TokenTTL = 300 * time.Millisecond })
	c := d.login()
	params := withKey(obj{"path": "f"})
	k := c.mint("write_file_stream", params)
	c.conn.Close()
	k.c = d.login()
	k.result().want(t, -32007, "token_invalid")
	k.c.fails("write_file_stream", params, -32006, "conflict")
	if names, err := os.ReadDir(d.path()); err != nil || len(names) > 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}
