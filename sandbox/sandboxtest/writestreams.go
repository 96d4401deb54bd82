package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing/iotest"

	"github.com/controld/controld/sandbox"
)

func writeStreamChecks() []check {
	var checks []check
	for _, n := range sizes() {
		checks = append(checks, check{fmt.Sprintf("%d bytes", n), func(e *env) {
			want := pattern(n)
			info, err := e.put("f", bytes.NewReader(want), sandbox.WriteOptions{})
			e.ok(err)
			e.equal(info.Bytes, int64(n))
			e.equal(info.ETag, e.stat("f").ETag)
			e.equal(e.read("f"), string(want))
			e.only("f")
		}})
	}
	return append(checks, []check{
		{"from a file", func(e *env) {
			want := pattern(3<<20 + 17)
			path := filepath.Join(e.TempDir(), "f")
			e.ok(os.WriteFile(path, want, 0o600))
			file, err := os.Open(path)
			e.ok(err)
			defer file.Close()
			info, err := e.put("f", file, sandbox.WriteOptions{Size: sandbox.Some(int64(len(want)))})
			e.ok(err)
			e.equal(info.Bytes, int64(len(want)))
			e.equal(e.read("f"), string(want))
		}},
		{"new file is 0644, mode is kept, mode is set", func(e *env) {
			e.put("f", strings.NewReader("x"), sandbox.WriteOptions{})
			e.equal(e.stat("f").Mode, sandbox.Some(uint32(0o644)))
			e.sh("chmod 700 f")
			e.put("f", strings.NewReader("x"), sandbox.WriteOptions{})
			e.equal(e.stat("f").Mode, sandbox.Some(uint32(0o700)))
			e.put("f", strings.NewReader("x"), sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o640))})
			e.equal(e.stat("f").Mode, sandbox.Some(uint32(0o640)))
		}},
		{"no parents are made", func(e *env) {
			_, err := e.put("a/f", strings.NewReader("x"), sandbox.WriteOptions{})
			e.kind(err, sandbox.KindNotFound)
			e.only()
		}},
		{"the reader's error aborts", func(e *env) {
			e.write("f", "old")
			boom := errors.New("boom")
			_, err := e.put("f", io.MultiReader(bytes.NewReader(pattern(1<<20)), iotest.ErrReader(boom)), sandbox.WriteOptions{})
			if err == nil {
				e.Fatal("no error")
			}
			e.equal(e.read("f"), "old")
			e.only("f")
		}},
		{"one byte at a time", func(e *env) {
			want := pattern(5000)
			_, err := e.put("f", iotest.OneByteReader(bytes.NewReader(want)), sandbox.WriteOptions{})
			e.ok(err)
			e.equal(e.read("f"), string(want))
		}},
		{"size that does not hold", func(e *env) {
			e.write("f", "old")
			for _, size := range []int64{3, 5} {
				_, err := e.put("f", strings.NewReader("1234"), sandbox.WriteOptions{Size: sandbox.Some(size)})
				e.kind(err, sandbox.KindTruncated)
			}
			e.equal(e.read("f"), "old")
			e.only("f")
		}},
		{"digest", func(e *env) {
			want := pattern(1<<20 + 5)
			_, err := e.put("f", bytes.NewReader(want), sandbox.WriteOptions{Digest: true})
			e.ok(err)
			e.equal(e.read("f"), string(want))
		}},
		{"digest that differs", func(e *env) {
			e.write("f", "old")
			sink, err := e.b.OpenWrite(e.ctx, e.p("f"), sandbox.WriteOptions{Digest: true})
			e.ok(err)
			io.WriteString(sink.Writer(), "new")
			_, err = sink.Commit(e.ctx, sandbox.Commit{Bytes: 3, SHA256: strings.Repeat("0", 64)})
			e.kind(err, sandbox.KindCorrupt)
			e.equal(e.read("f"), "old")
			e.only("f")
		}},
		{"digest that was not asked for", func(e *env) {
			sink, err := e.b.OpenWrite(e.ctx, e.p("f"), sandbox.WriteOptions{})
			e.ok(err)
			defer sink.Abort(nil)
			io.WriteString(sink.Writer(), "new")
			_, err = sink.Commit(e.ctx, sandbox.Commit{Bytes: 3, SHA256: strings.Repeat("0", 64)})
			e.kind(err, sandbox.KindInvalidParams)
		}},
		{"commit of fewer or more bytes", func(e *env) {
			e.write("f", "old")
			for _, n := range []int64{3, 5, 0} {
				sink, err := e.b.OpenWrite(e.ctx, e.p("f"), sandbox.WriteOptions{})
				e.ok(err)
				if _, here := sink.Writer().(*os.File); !here && n == 0 {
					// A commit may overtake bytes that are on their way, and
					// none is what has come then.
					sink.Abort(nil)
					continue
				}
				io.WriteString(sink.Writer(), "1234")
				if c, ok := sink.Writer().(interface{ CloseWrite() error }); ok {
					c.CloseWrite()
				}
				ctx, cancel := context.WithTimeout(e.ctx, patience/4)
				_, err = sink.Commit(ctx, sandbox.Commit{Bytes: n})
				cancel()
				e.kindIn(err, sandbox.KindTruncated)
			}
			e.equal(e.read("f"), "old")
			e.only("f")
		}},
		{"nothing shows before the commit", func(e *env) {
			sink, err := e.b.OpenWrite(e.ctx, e.p("f"), sandbox.WriteOptions{})
			e.ok(err)
			io.WriteString(sink.Writer(), "data")
			e.only()
			info, err := sink.Commit(e.ctx, sandbox.Commit{Bytes: 4})
			e.ok(err)
			e.equal(info.Bytes, int64(4))
			e.only("f")
		}},
		{"abort", func(e *env) {
			e.write("f", "old")
			sink, err := e.b.OpenWrite(e.ctx, e.p("f"), sandbox.WriteOptions{})
			e.ok(err)
			io.WriteString(sink.Writer(), "new")
			if err := sink.Abort(errors.New("cause")); err == nil {
				e.Fatal("abort lost its cause")
			}
			sink.Abort(nil)
			e.equal(e.read("f"), "old")
			e.only("f")
		}},
		{"if_match at the commit", func(e *env) {
			tag := e.write("f", "old").ETag
			sink, err := e.b.OpenWrite(e.ctx, e.p("f"), sandbox.WriteOptions{IfMatch: tag})
			e.ok(err)
			io.WriteString(sink.Writer(), "mine")
			e.write("f", "other")
			_, err = sink.Commit(e.ctx, sandbox.Commit{Bytes: 4})
			e.kind(err, sandbox.KindConflict)
			e.equal(e.read("f"), "other")
			e.only("f")
		}},
		{"two at once, the last commit wins", func(e *env) {
			a, err := e.b.OpenWrite(e.ctx, e.p("f"), sandbox.WriteOptions{})
			e.ok(err)
			b, err := e.b.OpenWrite(e.ctx, e.p("f"), sandbox.WriteOptions{})
			e.ok(err)
			io.WriteString(a.Writer(), "from a")
			io.WriteString(b.Writer(), "from b")
			_, err = b.Commit(e.ctx, sandbox.Commit{Bytes: 6})
			e.ok(err)
			e.equal(e.read("f"), "from b")
			_, err = a.Commit(e.ctx, sandbox.Commit{Bytes: 6})
			e.ok(err)
			e.equal(e.read("f"), "from a")
			e.only("f")
		}},
		{"a link is written through", func(e *env) {
			e.write("f", "old")
			e.sh("ln -s f l")
			_, err := e.put("l", strings.NewReader("new"), sandbox.WriteOptions{})
			e.ok(err)
			e.equal(e.read("f"), "new")
			e.only("f", "l")
		}},
		{"refused before a byte is read", func(e *env) {
			e.sh("mkdir d; mkfifo p; : > f")
			for name, want := range map[string]sandbox.Kind{"d": sandbox.KindIsDirectory, "p": sandbox.KindNotRegular, "f/x": sandbox.KindNotDirectory, "x/": sandbox.KindIsDirectory} {
				_, err := e.put(name, iotest.ErrReader(errors.New("was read")), sandbox.WriteOptions{})
				e.kind(err, want)
			}
		}},
		{"sync", func(e *env) {
			_, err := e.put("f", strings.NewReader("x"), sandbox.WriteOptions{Sync: true})
			e.ok(err)
			e.equal(e.read("f"), "x")
		}},
		{"a directory that moved", func(e *env) {
			e.sh("mkdir d")
			sink, err := e.b.OpenWrite(e.ctx, e.p("d/f"), sandbox.WriteOptions{})
			e.ok(err)
			io.WriteString(sink.Writer(), "x")
			e.sh("mv d e")
			_, err = sink.Commit(e.ctx, sandbox.Commit{Bytes: 1})
			e.ok(err)
			e.equal(e.read("e/f"), "x")
		}},
		{"parents for buffered writes", func(e *env) {
			sink, err := e.b.OpenWrite(e.ctx, e.p("a/b/f"), sandbox.WriteOptions{Parents: true})
			e.ok(err)
			io.WriteString(sink.Writer(), "x")
			_, err = sink.Commit(e.ctx, sandbox.Commit{Bytes: 1})
			e.ok(err)
			e.equal(e.read("a/b/f"), "x")
		}},
	}...)
}
