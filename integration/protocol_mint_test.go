package integration

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// ticket is a minted transfer.
type ticket struct {
	c         *wireClient
	id, token string
	minted    wireReply
}

// mint mints a transfer.
func (c *wireClient) mint(method string, params obj) ticket {
	c.t.Helper()
	r := c.ok(method, params)
	tr, _ := r.Result["transfer"].(obj)
	k := ticket{c: c, minted: r}
	k.id, _ = tr["id"].(string)
	k.token, _ = tr["token"].(string)
	return k
}

func (c *wireClient) mintWrite(path string) ticket {
	c.t.Helper()
	return c.mint("write_file_stream", obj{"path": path})
}

func (c *wireClient) mintRead(path string) ticket {
	c.t.Helper()
	return c.mint("read_file_stream", obj{"path": path})
}

// result is transfer_result.
func (k ticket) result() wireReply {
	k.c.t.Helper()
	return k.c.call("transfer_result", obj{"id": k.id})
}

// commit is transfer_commit.
func (k ticket) commit(n int) wireReply {
	k.c.t.Helper()
	return k.c.call("transfer_commit", obj{"id": k.id, "bytes": n})
}

// answerTo sends a preamble, with payload in the same write, and returns the
// connection and the line that answers, "" when there was none.
func (d *wireDaemon) answerTo(preamble string) (net.Conn, string) {
	d.t.Helper()
	conn := d.connect(d.ready.Data[0])
	if _, err := io.WriteString(conn, preamble); err != nil {
		d.t.Fatal(err)
	}
	var line []byte
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; {
		n, err := conn.Read(b)
		line = append(line, b[:n]...)
		if os.IsTimeout(err) {
			d.t.Fatal("no answer to a preamble")
		}
		if err != nil {
			break
		}
	}
	return conn, string(line)
}

// open opens the data connection of a transfer and sends the payload with its
// preamble.
func (k ticket) open(payload string) *dataConn {
	k.c.t.Helper()
	conn, line := k.c.d.answerTo("CTRLD1 " + k.token + "\n" + payload)
	if line != "OK\n" {
		k.c.t.Fatalf("the preamble was answered %q", line)
	}
	return &dataConn{conn, k.c.t}
}

// refused wants a token not to open anything any more.
func (k ticket) refused() {
	k.c.t.Helper()
	if _, line := k.c.d.answerTo("CTRLD1 " + k.token + "\n"); line != "ERR token_invalid\n" {
		k.c.t.Fatalf("the token was answered %q", line)
	}
}

// dataConn is an open data connection.
type dataConn struct {
	net.Conn
	t *testing.T
}

func (c *dataConn) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *dataConn) closeWrite() {
	c.t.Helper()
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// reset closes so that the peer sees an error.
func (c *dataConn) reset() {
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// all reads to the end, which must be one.
func (c *dataConn) all() string {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if err != nil {
		c.t.Fatalf("%d bytes, then %v", len(b), err)
	}
	return string(b)
}

// wasReset wants the daemon to have reset the connection.
func (c *dataConn) wasReset() {
	c.t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(c); err == nil || os.IsTimeout(err) {
		c.t.Fatalf("%d bytes, then %v instead of a reset", len(b), err)
	}
}
