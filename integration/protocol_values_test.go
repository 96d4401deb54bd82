package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWireProc: P8.16.
func TestWireProc(t *testing.T) {
	c := startWire(t, nil).login()
	want, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	if r := c.ok("read_file", obj{"path": "/proc/version"}); r.content(t, "content") != string(want) || r.Result["etag"] != nil {
		t.Fatalf("got %s", r.line)
	}
	if r := c.ok("stat", obj{"path": "/proc/version"}); r.Result["size"] != nil || r.Result["etag"] != nil || r.str("type") != "file" {
		t.Fatalf("got %s", r.line)
	}
	k := c.mint("read_file", obj{"path": "/proc/version", "inline_max": 1}) // P8.22
	if got := k.open("").all(); got != string(want) || k.minted.num("length") != len(want) {
		t.Fatalf("got %q", got)
	}
	k = c.mintRead("/proc/version")
	if m := k.minted.Result; m["size"] != nil || m["length"] != nil || m["etag"] != nil {
		t.Fatalf("minted %s", k.minted.line)
	}
	if got := k.open("").all(); got != string(want) || k.result().num("bytes") != len(want) {
		t.Fatalf("got %q", got)
	}
}

// TestWireSync: P8.10 as far as an answer shows it; see TestWireSyncReachesTheDisk.
func TestWireSync(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.ok("write_file", obj{"path": "a/f", "content": text("x"), "sync": true})
	k := c.mint("write_file_stream", obj{"path": "a/f", "sync": true})
	k.open("yy")
	if r := k.commit(2); r.num("bytes") != 2 || d.get("a/f") != "yy" {
		t.Fatalf("got %s", r.line)
	}
}

// TestWireNames: P5.3, P8.2 and P8.25 with names that are no UTF-8.
func TestWireNames(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	bad := obj{"base64": "bv8="} // "n\xff"
	c.ok("write_file", obj{"path": bad, "content": text("1")})
	c.writeFile("n\ufffd", "2")
	c.writeFile("\u00e9 \"q\"\n", "3")
	var names []string
	err := filepath.WalkDir(d.path(), func(p string, e os.DirEntry, err error) error { names = append(names, e.Name()); return err })
	if err != nil || len(names) != 4 {
		t.Fatalf("%q, %v", names, err)
	}
	r := c.ok("readdir", obj{"path": "."})
	if got := r.Result["entries"].([]any); len(got) != 3 || got[0] != "n\ufffd" || got[1].(obj)["base64"] != "bv8=" || got[2] != "\u00e9 \"q\"\n" {
		t.Fatalf("got %s", r.line)
	}
	r = c.ok("readdir", obj{"path": ".", "after": "n\ufffd", "limit": 1})
	if got := r.Result["entries"].([]any); len(got) != 1 || got[0].(obj)["base64"] != "bv8=" || r.Result["more"] != true {
		t.Fatalf("got %s", r.line)
	}
	if got := c.ok("read_file", obj{"path": bad}).content(t, "content"); got != "1" {
		t.Fatalf("got %q", got)
	}
	missing := c.fails("rm", obj{"path": obj{"base64": "/w=="}}, -32003, "not_found")
	if p, _ := missing.Error.Data["path"].(obj); p["base64"] != "/w==" {
		t.Fatalf("got %s", missing.line)
	}
	for _, path := range []string{"", "a\x00b"} {
		for _, method := range []string{"read_file", "stat", "readdir", "mkdir", "rm", "read_file_stream", "write_file_stream"} {
			c.fails(method, obj{"path": path}, -32602, "invalid_params")
		}
		c.fails("rm", obj{"path": path, "force": true}, -32602, "invalid_params")
		c.fails("write_file", obj{"path": path, "content": text("")}, -32602, "invalid_params")
		if r := c.ok("exists", obj{"path": path}); r.Result["exists"] != false {
			t.Fatalf("got %s", r.line)
		}
	}
}

// TestWireContent: P5.1 and P5.2 over a file and back.
func TestWireContent(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, content := range map[string]string{
		"text": "plain \u4e16\u754c", "all bytes": string(all), "empty": "", "nul": "\x00", "quotes": `""`, "large": string(bytes.Repeat(all, 4096)),
	} {
		d.put("f", content)
		r := c.ok("read_file_buffer", obj{"path": "f"})
		if r.content(t, "content") != content || r.num("size") != len(content) {
			t.Fatalf("%s: got %.200s", name, r.line)
		}
		c.ok("write_file", obj{"path": "g", "content": r.Result["content"]})
		if d.get("g") != content {
			t.Fatalf("%s: %q came back", name, d.get("g"))
		}
	}
	for want, content := range map[string]string{
		`{"text":"ab\""}`: `ab"`, `{"base64":"AA=="}`: "\x00", `{"text":"<&>"}`: "<&>", `{"base64":"/w=="}`: "\xff",
	} {
		d.put("f", content)
		if r := c.ok("read_file", obj{"path": "f"}); !strings.Contains(r.line, `"content":`+want) {
			t.Fatalf("%q came as %s", content, r.line)
		}
	}
}

// TestWireStat: P8.24 and P5.5.
func TestWireStat(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	d.put("f", "12345")
	when := time.Date(2001, 2, 3, 4, 5, 6, 789012345, time.UTC)
	if err := os.Chtimes(d.path("f"), when, when); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"l": "f", "dangling": "nowhere", "loop": "loop"} {
		if err := os.Symlink(to, d.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	r := c.ok("stat", obj{"path": "f"})
	want := obj{"type": "file", "is_symlink": false, "size": 5.0, "mtime": "2001-02-03T04:05:06.789012345Z", "mode": 420.0, "etag": r.str("etag")}
	for k, v := range want {
		if r.Result[k] != v {
			t.Errorf("%s is %v, want %v", k, r.Result[k], v)
		}
	}
	for _, tt := range []struct {
		params obj
		kind   string
		link   bool
	}{
		{obj{"path": "l"}, "file", true},
		{obj{"path": "l", "follow": true}, "file", true},
		{obj{"path": "l", "follow": false}, "symlink", true},
		{obj{"path": "dangling", "follow": false}, "symlink", true},
		{obj{"path": "."}, "directory", false},
		{obj{"path": "/dev/null"}, "other", false},
	} {
		if r := c.ok("stat", tt.params); r.str("type") != tt.kind || r.Result["is_symlink"] != tt.link {
			t.Errorf("%v: %s", tt.params, r.line)
		}
	}
	c.fails("stat", obj{"path": "dangling"}, -32003, "not_found")
	c.fails("stat", obj{"path": "loop"}, -32004, "loop")
	c.fails("stat", obj{"path": strings.Repeat("n", 256)}, -32004, "name_too_long")
}
