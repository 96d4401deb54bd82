package server_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/controld/controld/rpc/server"
)

// TestContentForms reads every kind of content and compares the form and the
// bytes with the rule as it stands in the protocol.
// Rules: P5.1 and P5.2.
func TestContentForms(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	contents := map[string][]byte{
		"empty":      {},
		"text":       []byte("plain"),
		"nul":        make([]byte, 64<<10),
		"angle":      bytes.Repeat([]byte("<"), 64<<10),
		"quotes":     bytes.Repeat([]byte(`"`), 64<<10),
		"lines":      bytes.Repeat([]byte("abc\n"), 16<<10),
		"few quotes": bytes.Repeat([]byte(`ab"`), 20<<10),
		"tie":        []byte(`ab"`),
		"chinese":    []byte(strings.Repeat("世界", 10000)),
		"binary":     {0xff, 0xfe, 0},
		"separators": []byte("\u2028\u2029&<>\x7f"),
		"cut rune":   []byte("世")[:2],
		"odd":        append(bytes.Repeat([]byte("世\t"), 33333), 0xc3),
	}
	for name, data := range contents {
		t.Run(name, func(t *testing.T) {
			q := &raw{t, r.conn, r.in}
			g.fake.put("f", data)
			p := q.call(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"f"}}`)
			checkContent(t, p.text(t, "content"), data)
			if p.text(t, "size") != fmt.Sprint(len(data)) || p.text(t, "etag") != `"r1"` {
				t.Fatalf("size %s etag %s", p.text(t, "size"), p.text(t, "etag"))
			}
			// Back again, in both forms.
			forms := []string{`{"base64":"` + base64.StdEncoding.EncodeToString(data) + `"}`, p.text(t, "content")}
			for _, form := range forms {
				q.expect(`{"jsonrpc":"2.0","id":2,"method":"write_file","params":{"path":"g","content":`+form+`}}`, "2", 0, "")
				if got, _ := g.fake.get("", "g"); !bytes.Equal(got, data) {
					t.Fatalf("wrote %d bytes, want %d", len(got), len(data))
				}
			}
		})
	}
}

func checkContent(t *testing.T, text string, data []byte) {
	t.Helper()
	var form struct{ Text, Base64 *string }
	decodeJSON(t, text, &form)
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	enc.Encode(string(data))
	want := strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSpace(plain.String()))
	coded := base64.StdEncoding.EncodeToString(data)
	utf := bytes.Equal([]byte(string([]rune(string(data)))), data)
	switch {
	case utf && len(want) <= len(coded)+2:
		if form.Text == nil || *form.Text != string(data) || text != `{"text":`+want+`}` {
			t.Fatalf("not the text it should be: %s", clip(text))
		}
	case form.Base64 == nil || *form.Base64 != coded:
		t.Fatalf("not the base64 it should be: %s", clip(text))
	}
}

// TestContentAtLimits has 64 KiB of NUL and of "<" meet each limit.
// Rules: P8.21, P3.8 and P6.4.
func TestContentAtLimits(t *testing.T) {
	const n = 64 << 10
	for name, b := range map[string]byte{"NUL": 0, "angle": '<'} {
		data := bytes.Repeat([]byte{b}, n)
		t.Run(name+" buffered", func(t *testing.T) {
			for limit, kind := range map[int64]string{n: "", n - 1: "too_large"} {
				g := start(t, func(c *server.Config) { c.Limits.MaxBufferedBytes = limit })
				r := g.login()
				g.fake.put("f", data)
				for _, params := range []string{`{"path":"f"}`, `{"path":"f","inline_max":1000000}`, `{"path":"f","inline_max":10}`} {
					p := r.call(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":` + params + `}`)
					if p.kind() != kind || kind != "" && p.Error.Data["limit"] != float64(limit) {
						t.Fatalf("limit %d: got %q", limit, p.kind())
					}
				}
				p := r.call(`{"jsonrpc":"2.0","id":1,"method":"write_file","params":{"path":"g","content":{"base64":"` +
					base64.StdEncoding.EncodeToString(data) + `"}}}`)
				if p.kind() != kind {
					t.Fatalf("write at limit %d: got %q", limit, p.kind())
				}
			}
		})
		t.Run(name+" message", func(t *testing.T) {
			encoded := map[byte]int{0: 4 * ((n + 2) / 3), '<': n}[b]
			g := start(t, func(c *server.Config) { c.Limits.MaxMessageBytes = int64(encoded) + 100 })
			r := g.login()
			g.fake.put("f", data)
			r.expect(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"f"}}`, "1", 0, "")
			r.expect(`{"jsonrpc":"2.0","id":`+strings.Repeat("1", 40)+`,"method":"read_file","params":{"path":"f"}}`,
				strings.Repeat("1", 40), -32005, "too_large")
		})
	}
}

// TestNames holds P5.3, P8.2 and P8.27.
func TestNames(t *testing.T) {
	g := start(t, nil)
	r := g.login()
	g.fake.names = []string{"a", "b\xff", "c\u00e9", "c\xc3"}
	p := r.call(`{"jsonrpc":"2.0","id":1,"method":"readdir","params":{"path":".","after":{"base64":"/w=="}}}`)
	if got := p.text(t, "entries"); got != `["a",{"base64":"Yv8="},"cé",{"base64":"Y8M="}]` {
		t.Fatalf("entries %s", got)
	}
	g.fake.put("x\xff", []byte("1"))
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":{"base64":"eP8="}}}`, "1", 0, "")
	p = r.expect(`{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":{"base64":"ef8="}}}`, "1", -32003, "not_found")
	if path, _ := p.Error.Data["path"].(map[string]any); path["base64"] != "ef8=" {
		t.Fatalf("data %v", p.Error.Data)
	}
	for _, bad := range []string{"", ".", "..", "a/b", "/"} {
		g.fake.names = []string{"a", bad}
		r.expect(`{"jsonrpc":"2.0","id":1,"method":"readdir","params":{"path":"."}}`, "1", -32603, "internal")
	}
	for _, path := range []string{`""`, `"a\u0000"`} {
		p := r.call(`{"jsonrpc":"2.0","id":1,"method":"exists","params":{"path":` + path + `}}`)
		if p.text(t, "exists") != "false" {
			t.Fatalf("exists %s: %v", path, p)
		}
	}
}

// TestUnsizedRead holds P8.16, P8.20 and P8.21.
func TestUnsizedRead(t *testing.T) {
	g := start(t, func(c *server.Config) { c.Limits.MaxBufferedBytes = 300000 })
	r := g.login()
	g.fake.unsized = true
	data := bytes.Repeat([]byte("0123456789"), 30000)
	g.fake.put("f", data)
	p := r.call(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"f"}}`)
	checkContent(t, p.text(t, "content"), data)
	g.fake.put("f", append(data, 'x'))
	r.expect(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"f"}}`, "1", -32005, "too_large")
	p = r.call(`{"jsonrpc":"2.0","id":1,"method":"read_file","params":{"path":"f","offset":400000}}`)
	if p.text(t, "content") != `{"text":""}` {
		t.Fatalf("past the end: %v", p)
	}
}

// TestContentsDoNotMix has many files of about one size, each of a byte of its
// own, wait for connections that do not read yet.
func TestContentsDoNotMix(t *testing.T) {
	const files, reads, rounds = 16, 100, 3
	g := start(t, nil)
	var want [files]string
	for i := range want {
		text := strings.Repeat(string(rune('a'+i)), 50<<10+i*100)
		g.fake.put(fmt.Sprint(i), []byte(text))
		want[i] = `"result":{"content":{"text":"` + text + `"}`
	}
	conns := []*raw{g.login(), g.login(), g.login()}
	for round := range rounds {
		for _, r := range conns {
			for i := range reads {
				r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"read_file","params":{"path":"%d"}}`, i, i%files))
			}
		}
		if round == 0 {
			conns[2].conn.Close() // its answers are dropped, some of them half sent
			conns = conns[:2]
		}
		for _, r := range conns {
			for range reads {
				line := r.line() // too long to be parsed by the standard library so often
				var i int
				if _, err := fmt.Sscanf(line, `{"jsonrpc":"2.0","id":%d,`, &i); err != nil || !strings.Contains(line, want[i%files]) {
					t.Fatalf("read %d of file %d: %d bytes: %s", i, i%files, len(line), clip(line))
				}
			}
		}
	}
}
