package sandboxtest

import (
	"bytes"
	"strings"

	"github.com/controld/controld/sandbox"
)

// allBytes has every byte, so that no text conversion goes unnoticed.
func allBytes() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func readChecks() []check {
	return []check{
		{"text", func(e *env) {
			e.write("f", "héllo\n")
			s, err := e.b.ReadFile(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			e.equal(s, "héllo\n")
		}},
		{"text that is none", func(e *env) {
			e.write("f", "\xff\xfe")
			_, err := e.b.ReadFile(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindInvalidUTF8)
		}},
		{"empty", func(e *env) {
			e.write("f", "")
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			e.equal(len(c.Data), 0)
			e.equal(c.Size, int64(0))
		}},
		{"binary", func(e *env) {
			e.write("f", string(allBytes()))
			e.equal(e.read("f"), string(allBytes()))
		}},
		{"NUL and < at 64 KiB", func(e *env) {
			for _, c := range []string{"\x00", "<", "\\", "\u2028"} {
				e.write("f", strings.Repeat(c, 65536))
				e.equal(e.read("f"), strings.Repeat(c, 65536))
			}
		}},
		{"sizes around the edges", func(e *env) {
			for _, n := range []int{1, 4095, 4096, 4097, 65535, 65536, 65537, 1<<20 - 1, 1 << 20, 1<<20 + 1} {
				want := strings.Repeat("0123456789abcde\n", n/16+1)[:n]
				e.write("f", want)
				if e.read("f") != want {
					e.Fatalf("%d bytes differ", n)
				}
			}
		}},
		{"8 MiB", func(e *env) {
			want := bytes.Repeat(allBytes(), 8<<20/256)
			e.write("f", string(want))
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			if !bytes.Equal(c.Data, want) {
				e.Fatal("bytes differ")
			}
			e.equal(c.Size, int64(8<<20))
		}},
		{"size and etag", func(e *env) {
			w := e.write("f", "abc")
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			e.equal(c.Size, int64(3))
			e.equal(c.ETag, w.ETag)
		}},
		{"range", func(e *env) {
			e.write("f", "0123456789")
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{Offset: 3, Length: sandbox.Some(int64(4))})
			e.ok(err)
			e.equal(string(c.Data), "3456")
			e.equal(c.Size, int64(10))
		}},
		{"range of nothing", func(e *env) {
			e.write("f", "0123456789")
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{Length: sandbox.Some(int64(0))})
			e.ok(err)
			e.equal(len(c.Data), 0)
		}},
		{"range past the end", func(e *env) {
			e.write("f", "0123456789")
			for _, off := range []int64{10, 11, 1 << 40} {
				c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{Offset: off})
				e.ok(err)
				e.equal(len(c.Data), 0)
			}
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{Offset: 8, Length: sandbox.Some(int64(1 << 40))})
			e.ok(err)
			e.equal(string(c.Data), "89")
		}},
		{"missing", func(e *env) {
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.equal(e.kind(err, sandbox.KindNotFound).Errno, "ENOENT")
		}},
		{"directory", func(e *env) {
			_, err := e.b.ReadFileBuffer(e.ctx, e.dir, sandbox.ReadOptions{})
			e.kind(err, sandbox.KindIsDirectory)
		}},
		{"file in the way", func(e *env) {
			e.write("f", "x")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("f/g"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotDirectory)
		}},
		{"trailing slash on a file", func(e *env) {
			e.write("f", "x")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("f/"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotDirectory)
		}},
		{"link", func(e *env) {
			e.write("f", "x")
			e.sh("ln -s f l")
			e.equal(e.read("l"), "x")
		}},
		{"dangling link", func(e *env) {
			e.sh("ln -s none l")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("l"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotFound)
		}},
		{"links in a circle", func(e *env) {
			e.sh("ln -s b a; ln -s a b")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("a"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindLoop)
		}},
		{"FIFO", func(e *env) {
			e.sh("mkfifo p")
			_, err := e.b.ReadFileBuffer(e.ctx, e.p("p"), sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotRegular)
		}},
		{"device", func(e *env) {
			_, err := e.b.ReadFileBuffer(e.ctx, "/dev/zero", sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotRegular)
		}},
		{"files that lie about their size", func(e *env) {
			s, err := e.b.ReadFile(e.ctx, "/proc/self/status", sandbox.ReadOptions{})
			e.ok(err)
			if !strings.Contains(s, "Pid:") {
				e.Fatalf("content %q", s)
			}
		}},
		{"too large", func(e *env) {
			info, err := e.b.Info(e.ctx)
			e.ok(err)
			e.sh("truncate -s 1G big")
			_, err = e.b.ReadFileBuffer(e.ctx, e.p("big"), sandbox.ReadOptions{})
			se := e.kind(err, sandbox.KindTooLarge)
			e.equal(se.Limit, sandbox.Some(info.Limits.MaxBufferedBytes))
			c, err := e.b.ReadFileBuffer(e.ctx, e.p("big"), sandbox.ReadOptions{Offset: 1 << 29, Length: sandbox.Some(int64(5))})
			e.ok(err)
			e.equal(string(c.Data), "\x00\x00\x00\x00\x00")
		}},
	}
}
