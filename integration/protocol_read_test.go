package integration

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

func (d *wireDaemon) appendTo(name, more string) {
	d.t.Helper()
	f, err := os.OpenFile(d.path(name), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = io.WriteString(f, more)
		f.Close()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// TestWireRead: P8.32, P10.20, P10.21 and P11.2.
func TestWireRead(t *testing.T) {
	d := startWire(t, nil)
	c, other := d.login(), d.login()
	content := strings.Repeat("0123456789abcdef", 20000)
	d.put("f", content)
	d.put("empty", "")
	size := len(content)
	tests := []struct {
		name   string
		params obj
		want   string
	}{
		{"whole", obj{"path": "f"}, content},
		{"from", obj{"path": "f", "offset": 100000}, content[100000:]},
		{"part", obj{"path": "f", "offset": 7, "length": 9}, content[7:16]},
		{"beyond", obj{"path": "f", "offset": size - 3, "length": 99}, content[size-3:]},
		{"past the end", obj{"path": "f", "offset": 2 * size}, ""},
		{"digest", obj{"path": "f", "offset": 1, "digest": "sha256"}, content[1:]},
		{"if_match", obj{"path": "f", "if_match": c.etag("f")}, content},
		{"nothing", obj{"path": "empty", "digest": "sha256"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := c.mint("read_file_stream", tt.params)
			whole := map[any]int{"f": size, "empty": 0}[tt.params["path"]]
			if m := k.minted; m.num("size") != whole || m.num("length") != len(tt.want) || m.str("etag") != c.etag(tt.params["path"].(string)) {
				t.Fatalf("minted %s", m.line)
			}
			early := other.send("transfer_result", obj{"id": k.id})
			conn := k.open("")
			got := make([]byte, len(tt.want))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != tt.want {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			want := obj{"bytes": float64(len(tt.want))}
			if tt.params["digest"] != nil {
				want["sha256"] = fmt.Sprintf("%x", sha256.Sum256([]byte(tt.want)))
			}
			for _, r := range []wireReply{other.wait(early), k.result(), k.result()} {
				if fmt.Sprint(r.Result) != fmt.Sprint(want) {
					t.Fatalf("got %s, want %v", r.line, want)
				}
			}
		})
	}
}

// TestWireReadEnd: P11.5, P11.6 and P10.40. The daemon ends its sending side
// and then leaves the closing to the client, whatever that still says: had it
// closed, what the client sends would reset the connection and eat the data.
func TestWireReadEnd(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	content := strings.Repeat("x", 100<<10)
	d.put("f", content)
	for _, late := range []bool{false, true} {
		k := c.mintRead("f")
		conn := k.open("early words")
		if late {
			if r := k.result(); r.num("bytes") != len(content) {
				t.Fatalf("got %s", r.line)
			}
			conn.send(strings.Repeat("late words", 1000))
			conn.closeWrite()
			c.ok("ping", nil)
		}
		if got := conn.all(); got != content {
			t.Fatalf("got %d bytes", len(got))
		}
	}
}

// TestWireReadOfChangedFiles: P10.42, P10.43 and P11.7.
func TestWireReadOfChangedFiles(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	grow := func() { d.appendTo("f", "more") }
	rewrite := func() {
		f, err := os.OpenFile(d.path("f"), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt([]byte("01234"), 0)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	shrink := func() {
		if err := os.Truncate(d.path("f"), 5); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name    string
		change  func()
		ifMatch bool
		want    string // "": the error changed
	}{
		{"grew", grow, false, "0123456789"},
		{"written", rewrite, false, "0123456789"},
		{"grew, if_match", grow, true, ""},
		{"written, if_match", rewrite, true, ""},
		{"shrank", shrink, false, ""},
		{"shrank, if_match", shrink, true, ""},
		{"replaced", func() { c.writeFile("f", "another file") }, true, "whole"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c.writeFile("f", "0123456789")
			params := obj{"path": "f"}
			if tt.ifMatch {
				params["if_match"] = c.etag("f")
			}
			k := c.mint("read_file_stream", params)
			tt.change()
			conn := k.open("")
			r := k.result()
			switch {
			case tt.want == "":
				r.want(t, -32006, "changed")
				conn.wasReset()
			case tt.want == "whole":
				if r.num("bytes") != 10 || r.Result["changed"] != nil || conn.all() != "0123456789" {
					t.Fatalf("got %s", r.line)
				}
			case r.num("bytes") != 10 || r.Result["changed"] != true || conn.all() != tt.want:
				t.Fatalf("got %s", r.line)
			}
		})
	}
	c.fails("read_file_stream", obj{"path": "f", "if_match": "no such etag"}, -32006, "conflict") // P8.14
}

// TestWireMintHolds: P10.2. What was opened at the mint is what is sent or
// written, whatever becomes of the names.
func TestWireMintHolds(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.writeFile("dir/f", "old")
	k := c.mintRead("dir/f")
	c.ok("rm", obj{"path": "dir/f"})
	c.writeFile("dir/f", "other")
	if got := k.open("").all(); got != "old" || k.result().num("bytes") != 3 {
		t.Fatalf("got %q", got)
	}
	k = c.mintWrite("dir/g")
	if err := os.Rename(d.path("dir"), d.path("moved")); err != nil {
		t.Fatal(err)
	}
	c.ok("mkdir", obj{"path": "dir"})
	k.open("new")
	if r := k.commit(3); r.Error != nil || d.get("moved/g") != "new" {
		t.Fatalf("got %s", r.line)
	}
	c.fails("stat", obj{"path": "dir/g"}, -32003, "not_found")
}

// TestWireReadStalls: P10.45, for reads, and P11.7.
func TestWireReadStalls(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.StallTimeout = 300 * time.Millisecond })
	c := d.login()
	d.put("f", "")
	if err := os.Truncate(d.path("f"), 1<<30); err != nil {
		t.Fatal(err)
	}
	k := c.mintRead("f")
	conn := k.open("")
	k.result().want(t, -32008, "stalled")
	conn.wasReset()
}

// TestWireNothingIsReadAhead: P10.44. Stalled reads of a large file, some of
// them through a digest and so through memory, cost next to nothing.
func TestWireNothingIsReadAhead(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	d.put("f", "")
	if err := os.Truncate(d.path("f"), 256<<20); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const many = 8
	for range many {
		conn := c.mint("read_file_stream", obj{"path": "f", "digest": "sha256"}).open("")
		if _, err := io.ReadFull(conn, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.HeapSys - before.HeapSys; int64(got) > many<<20+32<<20 {
		t.Fatalf("%d stalled reads took %d MiB", many, got>>20)
	}
}
