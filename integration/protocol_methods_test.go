package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/controld/controld/sandboxhost/daemon"
)

// TestWireReadFile: P8.20, P8.21, P8.22, P5.4 and P6.4.
func TestWireReadFile(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxBufferedBytes = 5000 })
	c := d.login()
	content := strings.Repeat("0123456789", 500)
	d.put("f", content)
	for params, want := range map[string]string{
		`{"path":"f"}`:                                   content,
		`{"path":"f","offset":1.0,"length":1e3}`:         content[1:1001],
		`{"path":"f","offset":5e0,"length":0}`:           "",
		`{"path":"f","offset":4999,"length":9}`:          "9",
		`{"path":"f","offset":5001}`:                     "",
		`{"path":"f","offset":9007199254740991}`:         "",
		`{"path":"f","inline_max":5000}`:                 content,
		`{"path":"f","length":9007199254740991}`:         content,
		`{"path":"f","offset":10,"length":10}`:           content[10:20],
		`{"path":"f","length":10,"inline_max":10}`:       content[:10],
		`{"path":"f","offset":100000,"inline_max":0}`:    "",
		`{"path":"f","scope":".","offset":0,"length":1}`: "0",
	} {
		for _, method := range []string{"read_file", "read_file_buffer"} {
			c.write(`{"jsonrpc":"2.0","id":"x","method":"` + method + `","params":` + params + "}\n")
			r := c.wait(`"x"`)
			if r.Error != nil || r.content(t, "content") != want || r.num("size") != 5000 || r.str("etag") != c.etag("f") {
				t.Fatalf("%s %s: %.200s", method, params, r.line)
			}
		}
	}
	for _, bad := range []string{`"offset":-1`, `"offset":1.5`, `"offset":9007199254740992`, `"length":"1"`, `"inline_max":null`, `"offset":1e16`} {
		c.write(`{"jsonrpc":"2.0","id":"x","method":"read_file","params":{"path":"f",` + bad + "}}\n")
		c.wait(`"x"`).want(t, -32602, "invalid_params")
	}
	k := c.mint("read_file", obj{"path": "f", "inline_max": 99, "offset": 1, "length": 100})
	if k.minted.num("length") != 100 || k.minted.num("size") != 5000 || k.minted.Result["content"] != nil || k.open("").all() != content[1:101] {
		t.Fatalf("got %s", k.minted.line)
	}
	d.appendTo("f", "x")
	for _, params := range []obj{{"path": "f"}, {"path": "f", "inline_max": 10}, {"path": "f", "inline_max": 99999}} {
		if r := c.fails("read_file", params, -32005, "too_large"); r.Error.Data["limit"] != 5000.0 {
			t.Fatalf("got %s", r.line)
		}
	}
	if r := c.fails("write_file", obj{"path": "g", "content": text(content + "x")}, -32005, "too_large"); r.Error.Data["limit"] != 5000.0 {
		t.Fatalf("got %s", r.line)
	}
	c.ok("write_file", obj{"path": "g", "content": text(content)})
	c.fails("read_file", obj{"path": "missing"}, -32003, "not_found")
}

// TestWireWriteFile: P8.23 and P8.33.
func TestWireWriteFile(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	r := c.ok("write_file", obj{"path": "a/b/c", "content": text("12")})
	if r.num("bytes") != 2 || r.Result["atomic"] != true || r.str("etag") != c.etag("a/b/c") || d.get("a/b/c") != "12" {
		t.Fatalf("got %s", r.line)
	}
	c.ok("write_file", obj{"path": "a/b/c", "content": obj{"base64": ""}})
	if d.get("a/b/c") != "" {
		t.Fatal("not emptied")
	}
	c.fails("write_file", obj{"path": "a/b/c/d", "content": text("")}, -32004, "not_directory")
	c.fails("write_file_stream", obj{"path": "x/y/z"}, -32003, "not_found")
	c.fails("stat", obj{"path": "x"}, -32003, "not_found")
	k := c.mint("write_file_stream", obj{"path": "x/y/z", "parents": true})
	k.open("3")
	if k.commit(1); d.get("x/y/z") != "3" || len(k.minted.Result) != 1 {
		t.Fatalf("minted %s", k.minted.line)
	}
}

// TestWireSize: P8.34.
func TestWireSize(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	k := c.mint("write_file_stream", obj{"path": "f", "size": 5})
	k.open("12345")
	if r := k.commit(5); r.num("bytes") != 5 || d.get("f") != "12345" {
		t.Fatalf("got %s", r.line)
	}
	for _, n := range []int{4, 6} {
		k := c.mint("write_file_stream", obj{"path": "f", "size": 5})
		k.open(strings.Repeat("x", n))
		k.commit(n).counts(t, float64(n), 5)
	}
	if d.get("f") != "12345" {
		t.Fatalf("f holds %q", d.get("f"))
	}
}

// entries are the names of a listing.
func (r wireReply) entries() []string {
	out := []string{}
	list, _ := r.Result["entries"].([]any)
	for _, e := range list {
		out = append(out, fmt.Sprint(e))
	}
	return out
}

// TestWireReadDir: P8.25 and P8.26.
func TestWireReadDir(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxMessageBytes = 32 << 10 })
	c := d.login()
	want := []string{"B", "Z", "a", "a b", "a.b", "aa", "\u00e9"}
	for _, name := range want {
		d.put(name, "")
	}
	if got := c.ok("readdir", obj{"path": "."}); !slices.Equal(got.entries(), want) || got.Result["more"] != nil {
		t.Fatalf("got %s", got.line)
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var all []string
		params := obj{"path": ".", "limit": limit}
		for {
			r := c.ok("readdir", params)
			all = append(all, r.entries()...)
			if len(r.entries()) > limit {
				t.Fatalf("limit %d: %s", limit, r.line)
			}
			if r.Result["more"] == nil {
				break
			}
			params["after"] = all[len(all)-1]
		}
		if !slices.Equal(all, want) {
			t.Fatalf("limit %d: %q", limit, all)
		}
	}
	if r := c.ok("readdir", obj{"path": ".", "after": "a.a"}); !slices.Equal(r.entries(), want[4:]) {
		t.Fatalf("got %s", r.line)
	}
	c.fails("readdir", obj{"path": "missing"}, -32003, "not_found")
	c.fails("readdir", obj{"path": "a"}, -32004, "not_directory")
	c.ok("mkdir", obj{"path": "many"})
	if r := c.ok("readdir", obj{"path": "many"}); len(r.entries()) != 0 || r.Result["entries"] == nil {
		t.Fatalf("got %s", r.line)
	}
	for i := range 250 {
		d.put(fmt.Sprintf("many/%03d%s", i, strings.Repeat("x", 150)), "")
	}
	c.fails("readdir", obj{"path": "many"}, -32005, "too_large")
	if r := c.ok("readdir", obj{"path": "many", "limit": 1000}); r.Result["more"] != true || len(r.entries()) < 100 {
		t.Fatalf("%d names", len(r.entries()))
	}
}

// TestWireExists: P8.28.
func TestWireExists(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	d.put("f", "")
	if err := os.Symlink("nowhere", d.path("dangling")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"f": true, ".": true, "/": true, "missing": false, "no/such": false, "f/x": false, "dangling": false,
		strings.Repeat("n", 256): false, strings.Repeat("d/", 3000): false, "f/": false,
	} {
		if r := c.ok("exists", obj{"path": path}); r.Result["exists"] != want || len(r.Result) != 1 {
			t.Errorf("%.20s: %s", path, r.line)
		}
	}
	if os.Geteuid() != 0 {
		c.ok("mkdir", obj{"path": "locked"})
		if err := os.Chmod(d.path("locked"), 0); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(d.path("locked"), 0o755)
		c.fails("exists", obj{"path": "locked/x"}, -32002, "permission")
	}
}

// TestWireMkdir: P8.29.
func TestWireMkdir(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	d.put("f", "")
	empty := func(params obj) {
		t.Helper()
		if r := c.ok("mkdir", params); len(r.Result) != 0 {
			t.Fatalf("got %s", r.line)
		}
	}
	empty(obj{"path": "d"})
	c.fails("mkdir", obj{"path": "d"}, -32004, "exists")
	c.fails("mkdir", obj{"path": "f"}, -32004, "exists")
	c.fails("mkdir", obj{"path": "x/y"}, -32003, "not_found")
	empty(obj{"path": "x/y", "recursive": true})
	empty(obj{"path": "x/y", "recursive": true})
	c.fails("mkdir", obj{"path": "f", "recursive": true}, -32004, "exists")
	c.fails("mkdir", obj{"path": "f/x", "recursive": true}, -32004, "not_directory")
	if info, err := os.Stat(d.path("x/y")); err != nil || !info.IsDir() {
		t.Fatal(err)
	}
}

// TestWireRm: P8.30 and P8.31.
func TestWireRm(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.writeFile("d/e/f", "1")
	c.writeFile("kept/f", "2")
	if err := os.Symlink("kept", d.path("link")); err != nil {
		t.Fatal(err)
	}
	gone := func(params obj) {
		t.Helper()
		if r := c.ok("rm", params); len(r.Result) != 0 {
			t.Fatalf("got %s", r.line)
		}
	}
	c.fails("rm", obj{"path": "d"}, -32004, "is_directory")
	c.fails("rm", obj{"path": "d", "force": true}, -32004, "is_directory")
	c.fails("rm", obj{"path": "missing"}, -32003, "not_found")
	c.fails("rm", obj{"path": "missing", "recursive": true}, -32003, "not_found")
	gone(obj{"path": "missing", "force": true})
	gone(obj{"path": "no/parent", "force": true})
	c.fails("rm", obj{"path": "link/", "recursive": true}, -32004, "not_directory")
	gone(obj{"path": "link", "recursive": true})
	gone(obj{"path": "d", "recursive": true})
	if names, err := os.ReadDir(d.path()); err != nil || len(names) != 1 || d.get("kept/f") != "2" {
		t.Fatalf("left: %v, %v", names, err)
	}
	for _, path := range []string{"/", ".", "..", "kept/..", "kept/.", d.path(), d.cfg.StateDir, d.path() + "/"} {
		c.fails("rm", obj{"path": path, "recursive": true, "force": true}, -32002, "permission")
	}
	gone(obj{"path": "kept/f"})
}

// TestWireErrorShape: P6.1.
func TestWireErrorShape(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	for _, tt := range []struct {
		method string
		params obj
		code   int
		want   obj
	}{
		{"stat", obj{"path": "no/such"}, -32003, obj{"kind": "not_found", "op": "stat", "path": "no/such", "errno": "ENOENT"}},
		{"rm", obj{"path": d.path("nothing")}, -32003, obj{"kind": "not_found", "op": "rm", "path": d.path("nothing"), "errno": "ENOENT"}},
		{"readdir", obj{"path": "/dev/null"}, -32004, obj{"kind": "not_directory", "op": "readdir", "path": "/dev/null", "errno": "ENOTDIR"}},
		{"transfer_result", obj{"id": "x"}, -32003, obj{"kind": "not_found", "op": "transfer"}},
	} {
		r := c.fails(tt.method, tt.params, tt.code, tt.want["kind"].(string))
		if fmt.Sprint(r.Error.Data) != fmt.Sprint(tt.want) {
			t.Errorf("data %v, want %v", r.Error.Data, tt.want)
		}
		prefix := fmt.Sprint(tt.want["op"])
		if p, ok := tt.want["path"]; ok {
			prefix += " " + fmt.Sprint(p)
		}
		if reason, ok := strings.CutPrefix(r.Error.Message, prefix+": "); !ok || reason == "" {
			t.Errorf("message %q", r.Error.Message)
		}
	}
}
