package integration

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestWireScope: P8.1, P8.4 and P8.5.
func TestWireScope(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.writeFile("in/sub/f", "inside")
	c.writeFile("f", "outside")
	c.writeFile("inner", "a name that begins alike")
	for link, to := range map[string]string{
		"out": "../f", "abs": "/etc/hostname", "back": d.path("in/sub/f"), "up": "..", "fine": "sub/f", "magic": "/proc/self/cwd",
	} {
		if err := os.Symlink(to, d.path("in", link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct{ scope, path, want string }{
		{"in", "sub/f", "inside"},
		{"in", "sub/../sub/./f", "inside"},
		{"in", "fine", "inside"},
		{"in/", d.path("in/sub/f"), "inside"},
		{d.path("in"), "sub/f", "inside"},
		{d.path("in") + "//.", d.path() + "//./in/sub//f", "inside"},
		{"in", "../f", ""},
		{"in", "sub/../../in/sub/f", ""},
		{"in", d.path("f"), ""},
		{"in", d.path("inner"), ""},
		{"in", d.path() + "/x/../in/sub/f", ""},
		{"in", d.path("in") + "/../f", ""},
		{"in", "/etc/hostname", ""},
		{"in", "out", ""},
		{"in", "abs", ""},
		{"in", "back", ""},
		{"in", "up/f", ""},
		{"in", "magic/x", ""},
	}
	for _, tt := range tests {
		t.Run(tt.scope+" "+tt.path, func(t *testing.T) {
			params := obj{"path": tt.path, "scope": tt.scope}
			if tt.want != "" {
				if got := c.ok("read_file", params).content(t, "content"); got != tt.want {
					t.Fatalf("got %q", got)
				}
				return
			}
			c.fails("read_file", params, -32002, "permission")
			c.fails("read_file_stream", params, -32002, "permission")
			c.fails("write_file_stream", params, -32002, "permission")
			params["content"] = text("broken out")
			c.fails("write_file", params, -32002, "permission")
		})
	}
	for _, method := range []string{"stat", "readdir", "exists", "mkdir", "rm"} {
		c.fails(method, obj{"path": "../f", "scope": "in"}, -32002, "permission")
		c.fails(method, obj{"path": "../f", "scope": ""}, -32602, "invalid_params") // P8.6
	}
	c.fails("write_file", obj{"path": "f", "content": text("x"), "if_match": ""}, -32602, "invalid_params")
	if c.read("f") != "outside" || c.read(d.path("f")) != "outside" {
		t.Fatal("something was written")
	}
}

// TestWireNotRegular: P8.7 and P8.8. Nobody waits for a FIFO.
func TestWireNotRegular(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.writeFile("file", "x")
	c.ok("mkdir", obj{"path": "dir"})
	if err := syscall.Mkfifo(d.path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, read, write string }{
		{"fifo", "not_regular", "not_regular"},
		{"/dev/null", "not_regular", "not_regular"},
		{"dir", "is_directory", "is_directory"},
		{"dir/", "is_directory", "is_directory"},
		{"missing/", "not_found", "is_directory"},
		{"no/such/parent/", "not_found", "is_directory"},
		{"file/", "not_directory", "not_directory"},
		{"file/x", "not_directory", "not_directory"},
	} {
		t.Run(tt.path, func(t *testing.T) {
			code := map[string]int{"not_found": -32003}
			for _, kind := range []string{"not_regular", "is_directory", "not_directory"} {
				code[kind] = -32004
			}
			c.fails("read_file", obj{"path": tt.path}, code[tt.read], tt.read)
			c.fails("read_file_stream", obj{"path": tt.path}, code[tt.read], tt.read)
			c.fails("write_file", obj{"path": tt.path, "content": text("")}, code[tt.write], tt.write)
			c.fails("write_file_stream", obj{"path": tt.path}, code[tt.write], tt.write)
		})
	}
}

// TestWireWritesAreAtomic: P8.9 and P8.15. A reader beside writers sees whole
// files only, and no two writes have an etag in common.
func TestWireWritesAreAtomic(t *testing.T) {
	d := startWire(t, nil)
	d.login()
	contents := map[string]bool{strings.Repeat("a", 100000): true, strings.Repeat("b", 70000): true}
	d.put("f", strings.Repeat("a", 100000))
	etags := make(chan string, 200)
	var writers sync.WaitGroup
	for content := range contents {
		c := d.login()
		writers.Go(func() {
			for i := range 50 {
				if i%2 == 0 {
					etags <- c.call("write_file", obj{"path": "f", "content": text(content)}).str("etag")
					continue
				}
				k := c.mintWrite("f")
				k.open(content)
				etags <- k.commit(len(content)).str("etag")
			}
		})
	}
	done := make(chan struct{})
	go func() {
		writers.Wait()
		close(done)
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		if got := d.get("f"); !contents[got] {
			t.Errorf("a reader saw %d bytes that nobody wrote", len(got))
			<-done
			break
		}
	}
	close(etags)
	seen := map[string]bool{}
	for tag := range etags {
		if tag == "" || seen[tag] {
			t.Fatalf("etag %q twice", tag)
		}
		seen[tag] = true
	}
}

// TestWireModes: P8.11, P8.12 and P5.7, under a umask that would take away
// everything.
func TestWireModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	d := startWire(t, nil)
	c := d.login()
	write := func(path string, more obj) {
		t.Helper()
		params := obj{"path": path, "content": text("new")}
		for k, v := range more {
			params[k] = v
		}
		c.ok("write_file", params)
		if d.get(path) != "new" {
			t.Fatalf("%s holds %q", path, d.get(path))
		}
	}
	mode := func(path string, want os.FileMode) {
		t.Helper()
		if info, err := os.Stat(d.path(path)); err != nil || info.Mode().Perm() != want {
			t.Fatalf("%s is %v, %v, want %v", path, info.Mode(), err, want)
		}
		if r := c.ok("stat", obj{"path": path}); r.num("mode") != int(want) {
			t.Fatalf("%s: %s", path, r.line)
		}
	}
	write("a/b/f", nil)
	mode("a/b/f", 0o644)
	mode("a/b", 0o755)
	c.ok("mkdir", obj{"path": "a/c"})
	mode("a/c", 0o755)
	write("g", obj{"mode": 0o600})
	mode("g", 0o600)
	write("g", nil)
	mode("g", 0o600)
	write("g", obj{"mode": 420})
	mode("g", 0o644)
	k := c.mint("write_file_stream", obj{"path": "h", "mode": 0o640})
	k.open("")
	k.commit(0)
	mode("h", 0o640)
	for _, bad := range []any{0o1000, 0o4755, -1, "644", 420.5} {
		c.fails("write_file", obj{"path": "g", "content": text(""), "mode": bad}, -32602, "invalid_params")
		c.fails("write_file_stream", obj{"path": "g", "mode": bad}, -32602, "invalid_params")
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(d.path("g"), 12345, 54321); err != nil {
			t.Fatal(err)
		}
		write("g", nil)
		info, err := os.Stat(d.path("g"))
		if st, ok := info.Sys().(*syscall.Stat_t); err != nil || !ok || st.Uid != 12345 || st.Gid != 54321 {
			t.Fatalf("the owner is %+v, %v", info.Sys(), err)
		}
	}
	for link, to := range map[string]string{"link": "a/target", "second": "link"} {
		if err := os.Symlink(to, d.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	write("second", nil) // dangling so far
	if info, err := os.Lstat(d.path("second")); err != nil || info.Mode().Type() != os.ModeSymlink || d.get("a/target") != "new" {
		t.Fatalf("a link was replaced: %v, %v", info, err)
	}
	d.put("one", "old")
	if err := os.Link(d.path("one"), d.path("two")); err != nil {
		t.Fatal(err)
	}
	write("one", nil)
	if d.get("two") != "old" {
		t.Fatal("the other name of a hard link was written")
	}
}

// TestWireIfMatch: P8.14, P8.3 and P8.23.
func TestWireIfMatch(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	first := c.writeFile("f", "one")
	for _, tag := range []string{c.etag("f"), c.ok("read_file", obj{"path": "f"}).str("etag"), c.mintRead("f").minted.str("etag"),
		c.ok("read_file", obj{"path": "f", "inline_max": 1}).str("etag"), c.ok("stat", obj{"path": "f", "follow": false}).str("etag")} {
		if tag != first || tag == "" {
			t.Fatalf("etag %q, another %q", tag, first)
		}
	}
	if r := c.ok("stat", obj{"path": "."}); r.Result["etag"] != nil {
		t.Fatalf("got %s", r.line)
	}
	write := func(path, tag string) wireReply {
		return c.call("write_file", obj{"path": path, "content": text("two"), "if_match": tag})
	}
	second := write("f", first)
	if second.Error != nil || second.str("etag") == first {
		t.Fatalf("got %s", second.line)
	}
	write("f", first).want(t, -32006, "conflict")
	write("missing", first).want(t, -32006, "conflict")
	write("no/parent", first).want(t, -32006, "conflict")
	c.fails("stat", obj{"path": "no"}, -32003, "not_found")

	// A stream is judged at its commit.
	k := c.mint("write_file_stream", obj{"path": "f", "if_match": second.str("etag")})
	late := c.mint("write_file_stream", obj{"path": "f", "if_match": second.str("etag")})
	k.open("three")
	late.open("four")
	if r := k.commit(5); r.Error != nil {
		t.Fatalf("got %s", r.line)
	}
	late.commit(4).want(t, -32006, "conflict")
	if d.get("f") != "three" {
		t.Fatalf("f holds %q", d.get("f"))
	}
	// Of many that saw the same version one wins.
	tag := c.etag("f")
	var ids []string
	for range 20 {
		ids = append(ids, c.send("write_file", obj{"path": "f", "content": text("x"), "if_match": tag}))
	}
	won := 0
	for _, id := range ids {
		if r := c.wait(id); r.Error == nil {
			won++
		} else {
			r.want(t, -32006, "conflict")
		}
	}
	if won != 1 {
		t.Fatalf("%d won", won)
	}
}
