// Package hostileagent is an agent that lies: it speaks the wire by hand, and
// says what its script has it say. It holds no test and knows no other package,
// so that nothing it says is checked before it is said.
package hostileagent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// Token is what its transfers are opened with.
const Token = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// Content is that of every file.
const Content = "hello"

// Script says where an agent lies; it is honest in all else.
type Script struct {
	// Results replace those of methods, as JSON.
	Results map[string]string
	// Says have the whole say of a method: they write whole lines, or what they
	// want; the connection closes where they return false.
	Says map[string]func(w io.Writer, id string) bool
	// Accept has the whole say of every connection, which closes behind it.
	Accept func(net.Conn)
	// Data has the whole say of a data connection behind its preamble.
	Data func(conn net.Conn, preamble string)
	// Files tells of the capability pass_files.
	Files bool
}

// Agent is one that runs.
type Agent struct {
	script Script
	ln     net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// Serve begins to lie on ln. The caller closes the agent, which closes ln.
func Serve(ln net.Listener, s Script) *Agent {
	a := &Agent{script: s, ln: ln, conns: make(map[net.Conn]struct{})}
	a.all.Go(a.accept)
	return a
}

// Close ends every connection and waits. It may be called twice.
func (a *Agent) Close() {
	a.mu.Lock()
	a.closed = true
	for c := range a.conns {
		c.Close()
	}
	a.mu.Unlock()
	a.ln.Close()
	a.all.Wait()
}

func (a *Agent) accept() {
	for {
		conn, err := a.ln.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		a.conns[conn] = struct{}{}
		if a.closed {
			conn.Close()
		}
		a.mu.Unlock()
		a.all.Go(func() {
			a.serve(conn)
			conn.Close()
			a.mu.Lock()
			delete(a.conns, conn)
			a.mu.Unlock()
		})
	}
}

func (a *Agent) serve(conn net.Conn) {
	if a.script.Accept != nil {
		a.script.Accept(conn)
		return
	}
	in := bufio.NewReader(conn)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	if first[0] == 'C' {
		a.data(conn, in)
		return
	}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil || !a.answer(conn, line) {
			return
		}
	}
}

// request is one as it is read.
type request struct {
	ID     json.RawMessage
	Method string
	Params struct {
		ID      any
		Bytes   int64
		Content struct {
			Text string
		}
	}
}

// answer says what there is to say to a line, and whether to go on.
func (a *Agent) answer(w io.Writer, line []byte) bool {
	var r request
	if json.Unmarshal(line, &r) != nil {
		return false
	}
	id := string(r.ID)
	if say := a.script.Says[r.Method]; say != nil {
		return say(w, id)
	}
	result, ok := a.script.Results[r.Method]
	if !ok {
		result = a.honest(&r)
	}
	return result == "" || Result(w, id, result) == nil
}

// Result writes a whole answer.
func Result(w io.Writer, id, result string) error {
	_, err := fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
	return err
}

// Hello is an honest hello with these capabilities, whose limits allow a line
// of any length.
func Hello(capabilities ...string) string {
	return `{"protocol":1,"server":"liar/1","epoch":"e","tenant":"t","sandbox":"s","cwd":"/workspace","data":["unix:///d"],` +
		`"capabilities":["` + strings.Join(capabilities, `","`) + `"],"limits":{"max_message_bytes":9007199254740991}}`
}

// Transfer is an honest one with this id, token and endpoint.
func Transfer(id, token, endpoint string) string {
	return fmt.Sprintf(`{"id":%q,"token":%q,"endpoints":[%q],"expires_in_s":30}`, id, token, endpoint)
}

// honest is the result of a method; empty where the answer comes later, if ever.
func (a *Agent) honest(r *request) string {
	switch r.Method {
	case "hello":
		if a.script.Files {
			return Hello("exec", "pass_files")
		}
		return Hello("exec")
	case "stat":
		return `{"type":"file","size":5}`
	case "exists":
		return `{"exists":true}`
	case "readdir":
		return `{"entries":["a","b"]}`
	case "read_file":
		return `{"content":{"text":"hello"},"size":5,"etag":"e"}`
	case "write_file":
		return fmt.Sprintf(`{"bytes":%d,"etag":"e","atomic":true}`, len(r.Params.Content.Text))
	case "exec":
		return `{"stdout":{"text":""},"stderr":{"text":""},"exit_code":0,"reason":"exited","duration_s":0}`
	case "read_file_stream":
		return `{"transfer":` + Transfer("read", Token, "unix:///d") + `,"size":5,"length":5,"etag":"e"}`
	case "write_file_stream":
		return `{"transfer":` + Transfer("write", Token, "unix:///d") + `}`
	case "transfer_result":
		if r.Params.ID == "write" {
			return ""
		}
		return `{"bytes":5}`
	case "transfer_commit":
		return fmt.Sprintf(`{"bytes":%d,"etag":"e"}`, r.Params.Bytes)
	case "$/cancelRequest":
		return ""
	}
	return "{}"
}

// data serves a data connection: of a read and of a write alike, for it does
// not know which it is.
func (a *Agent) data(conn net.Conn, in *bufio.Reader) {
	preamble := make([]byte, 51)
	if _, err := io.ReadFull(in, preamble); err != nil {
		return
	}
	if a.script.Data != nil {
		a.script.Data(conn, string(preamble))
		return
	}
	if strings.HasPrefix(string(preamble), "CTRLF1 ") {
		io.WriteString(conn, "ERR unsupported\n")
		return
	}
	io.WriteString(conn, "OK\n"+Content)
	io.Copy(io.Discard, in)
}
