package server_test

import (
	"strings"
	"testing"
)

// TestExample holds P9.1 and P10.1.
func TestExample(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	p := r.call(`{"jsonrpc":"2.0","id":2,"method":"exec","params":{"command":"echo hi","timeout_s":10}}`)
	if got := p.text(t, "stdout"); got != `{"text":"hi"}` {
		t.Fatalf("stdout %s", got)
	}
	p = r.call(`{"jsonrpc":"2.0","id":3,"method":"write_file_stream","params":{"path":"model.bin"}}`)
	var tr struct {
		ID, Token string
		Endpoints []string
		Expires   float64 `json:"expires_in_s"`
	}
	decodeJSON(t, p.text(t, "transfer"), &tr)
	if len(tr.ID) != 36 || len(tr.Token) != 43 || len(tr.Endpoints) != 1 || tr.Expires != 30 {
		t.Fatalf("transfer %+v", tr)
	}
}

// TestLines goes through what section 3 says of single lines after hello.
// Rules: P3.3, P3.10, P3.11, P3.12, P3.13, P3.15, P3.16, P3.20 and P7.6.
func TestLines(t *testing.T) {
	deep := strings.Repeat(`[`, 62) + strings.Repeat(`]`, 62)
	deeper := strings.Repeat(`[`, 63) + strings.Repeat(`]`, 63)
	tests := []struct {
		name, line, id string
		code           int
		kind           string
	}{
		{"no JSON", `{"jsonrpc":"2.0","id":1,`, "null", -32700, "parse_error"},
		{"a word", `{nope}`, "null", -32700, "parse_error"},
		{"trailing", `{"jsonrpc":"2.0","id":1,"method":"ping"} x`, "null", -32700, "parse_error"},
		{"bad params, then no JSON", `{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":5},,}`, "null", -32700, "parse_error"},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stat\",\"params\":{\"path\":\"\xff\"}}", "null", -32700, "parse_error"},
		{"overlong UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"\xc0\x80\"}", "null", -32700, "parse_error"},
		{"lone surrogate", `{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":"\ud800"}}`, "null", -32700, "parse_error"},
		{"lone low surrogate", `{"jsonrpc":"2.0","id":1,"method":"ping","x":"\udc00"}`, "null", -32700, "parse_error"},
		{"surrogate with another", `{"jsonrpc":"2.0","id":1,"method":"ping","x":"\ud800\u0041"}`, "null", -32700, "parse_error"},
		{"raw tab", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"\t\"}", "null", -32700, "parse_error"},
		{"leading zero", `{"jsonrpc":"2.0","id":01,"method":"ping"}`, "null", -32700, "parse_error"},
		{"NaN", `{"jsonrpc":"2.0","id":NaN,"method":"ping"}`, "null", -32700, "parse_error"},
		{"single quotes", `{'jsonrpc':'2.0'}`, "null", -32700, "parse_error"},
		{"too deep", `{"jsonrpc":"2.0","id":1,"method":"ping","x":[` + deeper + `]}`, "null", -32700, "parse_error"},
		{"just not too deep", `{"jsonrpc":"2.0","id":1,"method":"ping","x":[` + deep + `]}`, "1", 0, ""},
		{"number alone", ` 5`, "null", -32600, "invalid_request"},
		{"string alone", "\t\"x\"", "null", -32600, "invalid_request"},
		{"no version", `{"id":1,"method":"ping"}`, "1", -32600, "invalid_request"},
		{"other version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, "1", -32600, "invalid_request"},
		{"no method", `{"jsonrpc":"2.0","id":1}`, "1", -32600, "invalid_request"},
		{"method no string", `{"jsonrpc":"2.0","id":"a","method":5}`, `"a"`, -32600, "invalid_request"},
		{"ID is unknown", `{"jsonrpc":"2.0","ID":1,"id":7,"method":"ping"}`, "7", 0, ""},
		{"Method is unknown", `{"jsonrpc":"2.0","id":7,"Method":"ping"}`, "7", -32600, "invalid_request"},
		{"unknown twice", `{"jsonrpc":"2.0","id":7,"x":1,"x":2,"method":"ping"}`, "7", 0, ""},
		{"id twice", `{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}`, "null", -32600, "invalid_request"},
		{"id twice, escaped", `{"jsonrpc":"2.0","id":7,"\u0069d":8,"method":"ping"}`, "null", -32600, "invalid_request"},
		{"method twice", `{"jsonrpc":"2.0","id":7,"method":"ping","method":"ping"}`, "7", -32600, "invalid_request"},
		{"params twice", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{},"params":{}}`, "7", -32600, "invalid_request"},
		{"jsonrpc twice", `{"jsonrpc":"2.0","jsonrpc":"2.0","id":7,"method":"ping"}`, "7", -32600, "invalid_request"},
		{"id true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, "null", -32600, "invalid_request"},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, "null", -32600, "invalid_request"},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", 0, ""},
		{"id huge", `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`, "1e400", 0, ""},
		{"id minus zero", `{"jsonrpc":"2.0","id":-0.0,"method":"ping"}`, "-0.0", 0, ""},
		{"id escaped", `{"jsonrpc":"2.0","id":"\u0041\/","method":"ping"}`, `"\u0041\/"`, 0, ""},
		{"id last", `{"method":"ping","params":{},"jsonrpc":"2.0","id":9}`, "9", 0, ""},
		{"carriage return", "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}\r", "9", 0, ""},
		{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"Ping"}`, "1", -32601, "unknown_method"},
		{"positional", `{"jsonrpc":"2.0","id":1,"method":"stat","params":["x"]}`, "1", -32602, "invalid_params"},
		{"null params", `{"jsonrpc":"2.0","id":1,"method":"stat","params":null}`, "1", -32602, "invalid_params"},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"stat"}`, "1", -32602, "invalid_params"},
		{"params first", `{"params":{"path":"hello.txt"},"jsonrpc":"2.0","id":1,"method":"stat"}`, "1", 0, ""},
		{"bad params first", `{"params":{"path":5},"jsonrpc":"2.0","id":1,"method":"stat"}`, "1", -32602, "invalid_params"},
		{"second hello", helloLine, "0", -32600, "invalid_request"},
		{"empty batch", `[]`, "null", -32600, "invalid_request"},
	}
	g := start(t, nil)
	r := g.login()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			(&raw{t, r.conn, r.in}).expect(tt.line, tt.id, tt.code, tt.kind)
		})
	}
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "1", 0, "")
}

// TestFields sees each fault of params named.
// Rules: P3.17, P5.1, P5.4, P5.6, P5.7, P8.2, P8.6, P9.6, P9.8 and P9.14.
func TestFields(t *testing.T) {
	tests := []struct{ method, params, field string }{
		{"stat", `{"path":5}`, "path"},
		{"stat", `{"path":"x","Path":"y"}`, "Path"},
		{"stat", `{"path":"x","path":"y"}`, "path"},
		{"stat", `{"path":"x","pat\u0068":"y"}`, "path"},
		{"stat", `{"path":"x","nope":1}`, "nope"},
		{"stat", `{"path":"x","follow":1}`, "follow"},
		{"stat", `{"path":"x","follow":null}`, "follow"},
		{"stat", `{}`, "path"},
		{"stat", `{"path":""}`, "path"},
		{"stat", `{"path":"a\u0000b"}`, "path"},
		{"stat", `{"path":{"base64":"*"}}`, "path"},
		{"stat", `{"path":{"base64":"YQ"}}`, "path"},
		{"stat", `{"path":{"base64":"YR=="}}`, "path"},
		{"stat", `{"path":{"base64":"Y\nQ=="}}`, "path"},
		{"stat", `{"path":{"text":"a"}}`, "path"},
		{"stat", `{"path":{}}`, "path"},
		{"stat", `{"path":"x","scope":""}`, "scope"},
		{"read_file", `{"path":"x","offset":-1}`, "offset"},
		{"read_file", `{"path":"x","offset":1.5}`, "offset"},
		{"read_file", `{"path":"x","offset":9007199254740992}`, "offset"},
		{"read_file", `{"path":"x","offset":1e400}`, "offset"},
		{"read_file", `{"path":"x","length":"1"}`, "length"},
		{"read_file", `{"path":"x","if_match":"e"}`, "if_match"},
		{"read_file_stream", `{"path":"x","if_match":""}`, "if_match"},
		{"write_file", `{"path":"x","content":{"text":"a"},"if_match":""}`, "if_match"},
		{"write_file_stream", `{"path":"x","if_match":""}`, "if_match"},
		{"read_file_stream", `{"path":"x","inline_max":1}`, "inline_max"},
		{"read_file_stream", `{"path":"x","digest":"md5"}`, "digest"},
		{"write_file", `{"path":"x"}`, "content"},
		{"write_file", `{"path":"x","content":"text"}`, "content"},
		{"write_file", `{"path":"x","content":{}}`, "content"},
		{"write_file", `{"path":"x","content":{"text":"a","base64":"YQ=="}}`, "content"},
		{"write_file", `{"path":"x","content":{"text":"a","text":"b"}}`, "content"},
		{"write_file", `{"path":"x","content":{"base64":"Y-__"}}`, "content"},
		{"write_file", `{"path":"x","content":{"text":"a"},"mode":4095}`, "mode"},
		{"write_file", `{"path":"x","content":{"text":"a"},"mode":"644"}`, "mode"},
		{"write_file", `{"path":"x","content":{"text":"a"},"parents":true}`, "parents"},
		{"readdir", `{"path":"x","limit":0}`, "limit"},
		{"exec", `{"command":"a\u0000b"}`, "command"},
		{"exec", `{"command":"x","timeout_s":0}`, "timeout_s"},
		{"exec", `{"command":"x","timeout_s":-1}`, "timeout_s"},
		{"exec", `{"command":"x","timeout_s":604801}`, "timeout_s"},
		{"exec", `{"command":"x","timeout_s":1e999}`, "timeout_s"},
		{"exec", `{"command":"x","kill_grace_s":-0.1}`, "kill_grace_s"},
		{"exec", `{"command":"x","max_output_bytes":8388609}`, "max_output_bytes"},
		{"exec", `{"command":"x","env":{"A=B":"x"}}`, "A=B"},
		{"exec", `{"command":"x","env":{"1A":"x"}}`, "1A"},
		{"exec", `{"command":"x","env":{"":"x"}}`, "env"},
		{"exec", `{"command":"x","env":{"A":1}}`, "A"},
		{"exec", `{"command":"x","env":{"A":"1","A":"2"}}`, "A"},
		{"exec", `{"command":"x","env":[]}`, "env"},
		{"exec", `{"command":"x","cwd":""}`, "cwd"},
		{"exec", `{"command":"x","scope":"/"}`, "scope"},
		{"transfer_commit", `{"id":"x"}`, "bytes"},
		{"transfer_commit", `{"id":"x","bytes":1,"sha256":"AB"}`, "sha256"},
		{"transfer_result", `{"id":5}`, "id"},
		{"$/cancelRequest", `{"id":[]}`, "id"},
		{"ping", `{"x":1}`, "x"},
	}
	g := start(t, nil)
	r := g.login()
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.params, func(t *testing.T) {
			q := &raw{t, r.conn, r.in}
			p := q.expect(`{"jsonrpc":"2.0","id":1,"method":"`+tt.method+`","params":`+tt.params+`}`, "1", -32602, "invalid_params")
			if !strings.Contains(p.Error.Message, tt.field) {
				t.Fatalf("%q does not name %q", p.Error.Message, tt.field)
			}
		})
	}
}
