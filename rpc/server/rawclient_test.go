package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of a test; it is never spent when all is well.
const patience = 20 * time.Second

// raw speaks to a server by bare lines, knowing nothing of our packages.
type raw struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func newRaw(t *testing.T, conn net.Conn) *raw {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	return &raw{t: t, conn: conn, in: bufio.NewReaderSize(conn, 1<<20)}
}

// write sends bytes as they are.
func (r *raw) write(text string) {
	r.t.Helper()
	r.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(r.conn, text); err != nil {
		r.t.Fatalf("write: %v", err)
	}
}

// send sends lines.
func (r *raw) send(lines ...string) {
	r.t.Helper()
	r.write(strings.Join(lines, "\n") + "\n")
}

// line receives a line.
func (r *raw) line() string {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := r.in.ReadString('\n')
	if err != nil {
		r.t.Fatalf("read: %v after %q", err, clip(line))
	}
	return strings.TrimSuffix(line, "\n")
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "..."
	}
	return s
}

// reply is an answer as a stranger reads it.
type reply struct {
	JSONRPC string                     `json:"jsonrpc"`
	ID      json.RawMessage            `json:"id"`
	Result  map[string]json.RawMessage `json:"result"`
	Error   *struct {
		Code    int            `json:"code"`
		Message string         `json:"message"`
		Data    map[string]any `json:"data"`
	} `json:"error"`
}

func (p reply) kind() string {
	if p.Error == nil {
		return ""
	}
	kind, _ := p.Error.Data["kind"].(string)
	return kind
}

func (p reply) code() int {
	if p.Error == nil {
		return 0
	}
	return p.Error.Code
}

func (r *raw) parse(line string, into any) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(line), into); err != nil {
		r.t.Fatalf("reply is no JSON: %v: %s", err, clip(line))
	}
}

// reply receives an answer.
func (r *raw) reply() reply {
	r.t.Helper()
	line := r.line()
	var p reply
	r.parse(line, &p)
	if p.JSONRPC != "2.0" || p.ID == nil || (p.Result == nil) == (p.Error == nil) {
		r.t.Fatalf("no answer of JSON-RPC 2.0: %s", clip(line))
	}
	return p
}

// call sends a line and receives the one answer.
func (r *raw) call(line string) reply {
	r.t.Helper()
	r.send(line)
	return r.reply()
}

// expect calls and compares the id, the code and the kind of the answer.
func (r *raw) expect(line, id string, code int, kind string) reply {
	r.t.Helper()
	p := r.call(line)
	if string(p.ID) != id || p.code() != code || p.kind() != kind {
		r.t.Fatalf("%s: got id %s code %d kind %q (%+v), want id %s code %d kind %q",
			clip(line), p.ID, p.code(), p.kind(), p.Error, id, code, kind)
	}
	return p
}

// closed waits for the server to close and fails on any byte before.
func (r *raw) closed() {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(r.in)
	if len(rest) > 0 {
		r.t.Fatalf("bytes before the close: %q", clip(string(rest)))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Fatal("the server did not close")
	}
}

// closedCleanly is closed for a connection that was not reset.
func (r *raw) closedCleanly() {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(patience))
	if rest, err := io.ReadAll(r.in); err != nil || len(rest) > 0 {
		r.t.Fatalf("%d bytes, then %v", len(rest), err)
	}
}

// text is a field of a result as JSON.
func (p reply) text(t *testing.T, field string) string {
	t.Helper()
	v, ok := p.Result[field]
	if !ok {
		t.Fatalf("no field %s in %v (error %v)", field, p.Result, p.Error)
	}
	return string(v)
}

// readLine reads up to a newline and no further.
func (r *raw) readLine() string {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := r.in.ReadString('\n')
	if err != nil {
		r.t.Fatalf("%q, then %v", line, err)
	}
	return line
}
