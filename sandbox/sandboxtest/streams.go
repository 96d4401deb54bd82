package sandboxtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing/iotest"

	"github.com/controld/controld/sandbox"
)

// pattern returns n bytes in which every place looks different.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func (e *env) stream(name string, opts sandbox.ReadOptions) ([]byte, error) {
	e.Helper()
	s, err := e.b.ReadFileStream(e.ctx, e.p(name), opts)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return io.ReadAll(s)
}

func (e *env) put(name string, r io.Reader, opts sandbox.WriteOptions) (sandbox.WriteInfo, error) {
	e.Helper()
	return e.b.WriteFileStream(e.ctx, e.p(name), r, opts)
}

// sizes are those at which something always breaks.
func sizes() []int {
	return []int{0, 1, 4095, 4096, 4097, 65535, 65536, 65537, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5 << 20}
}

func readStreamChecks() []check {
	var checks []check
	for _, n := range sizes() {
		checks = append(checks, check{fmt.Sprintf("%d bytes", n), func(e *env) {
			want := pattern(n)
			e.write("f", string(want))
			got, err := e.stream("f", sandbox.ReadOptions{})
			e.ok(err)
			if !bytes.Equal(got, want) {
				e.Fatalf("%d bytes differ", len(got))
			}
		}})
	}
	return append(checks, []check{
		{"into a file", func(e *env) {
			want := pattern(3<<20 + 17)
			e.write("f", string(want))
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			file, err := os.Create(filepath.Join(e.TempDir(), "f"))
			e.ok(err)
			defer file.Close()
			n, err := io.Copy(file, s)
			e.ok(err)
			e.equal(n, int64(len(want)))
			got, err := os.ReadFile(file.Name())
			e.ok(err)
			if !bytes.Equal(got, want) {
				e.Fatal("bytes differ")
			}
		}},
		{"size, length and etag", func(e *env) {
			tag := e.write("f", "0123456789").ETag
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{Offset: 2, Length: sandbox.Some(int64(3))})
			e.ok(err)
			defer s.Close()
			size, known := s.Size()
			e.equal(fmt.Sprint(size, known), "10 true")
			length, known := s.Length()
			e.equal(fmt.Sprint(length, known), "3 true")
			e.equal(s.ETag(), tag)
			b, err := io.ReadAll(s)
			e.ok(err)
			e.equal(string(b), "234")
			e.equal(s.Sent(), int64(3))
		}},
		{"range past the end", func(e *env) {
			e.write("f", "0123456789")
			for _, off := range []int64{10, 1 << 40} {
				b, err := e.stream("f", sandbox.ReadOptions{Offset: off})
				e.ok(err)
				e.equal(len(b), 0)
			}
			b, err := e.stream("f", sandbox.ReadOptions{Offset: 7, Length: sandbox.Some(int64(1 << 50))})
			e.ok(err)
			e.equal(string(b), "789")
		}},
		{"one byte at a time", func(e *env) {
			want := pattern(5000)
			e.write("f", string(want))
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			got, err := io.ReadAll(iotest.OneByteReader(s))
			e.ok(err)
			e.equal(bytes.Equal(got, want), true)
		}},
		{"EOF stays EOF", func(e *env) {
			e.write("f", "x")
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			io.ReadAll(s)
			for range 3 {
				n, err := s.Read(make([]byte, 8))
				e.equal(fmt.Sprint(n, err), "0 EOF")
			}
		}},
		{"digest", func(e *env) {
			want := pattern(2<<20 + 3)
			e.write("f", string(want))
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{Digest: true})
			e.ok(err)
			defer s.Close()
			got, err := io.ReadAll(s)
			e.ok(err)
			e.equal(bytes.Equal(got, want), true)
			sum := sha256.Sum256(want)
			e.equal(s.Verdict().SHA256, hex.EncodeToString(sum[:]))
		}},
		{"no digest unless asked", func(e *env) {
			e.write("f", "x")
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			io.ReadAll(s)
			e.equal(s.Verdict().SHA256, "")
			e.equal(s.Verdict().Changed, false)
		}},
		{"if_match", func(e *env) {
			tag := e.write("f", "x").ETag
			b, err := e.stream("f", sandbox.ReadOptions{IfMatch: tag})
			e.ok(err)
			e.equal(string(b), "x")
			e.write("f", "y")
			_, err = e.stream("f", sandbox.ReadOptions{IfMatch: tag})
			e.kind(err, sandbox.KindConflict)
		}},
		{"files that lie about their size", func(e *env) {
			s, err := e.b.ReadFileStream(e.ctx, "/proc/self/status", sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			if _, known := s.Length(); known {
				e.Error("a length was invented")
			}
			b, err := io.ReadAll(s)
			e.ok(err)
			if !bytes.Contains(b, []byte("Pid:")) {
				e.Fatalf("content %q", b)
			}
		}},
		{"a file that grew", func(e *env) {
			e.write("f", "0123456789")
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			e.sh("printf more >> f")
			b, err := io.ReadAll(s)
			e.ok(err)
			e.equal(string(b), "0123456789")
		}},
		{"a file that shrank", func(e *env) {
			e.sh("truncate -s 200M f")
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			_, err = io.ReadFull(s, make([]byte, 1000))
			e.ok(err)
			e.sh("truncate -s 1000 f")
			_, err = io.Copy(io.Discard, s)
			se := e.kind(err, sandbox.KindChanged)
			if !se.Bytes.Known || se.Bytes.Value >= 200<<20 {
				e.Fatalf("bytes %+v", se.Bytes)
			}
		}},
		{"a file that was replaced", func(e *env) {
			e.write("f", "old")
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			e.write("f", "new!")
			b, err := io.ReadAll(s)
			e.ok(err)
			e.equal(string(b), "old")
		}},
		{"a file that was removed", func(e *env) {
			e.write("f", "old")
			s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			e.sh("rm f")
			b, err := io.ReadAll(s)
			e.ok(err)
			e.equal(string(b), "old")
		}},
		{"closed before its end", func(e *env) {
			e.sh("truncate -s 200M f")
			for range 3 {
				s, err := e.b.ReadFileStream(e.ctx, e.p("f"), sandbox.ReadOptions{})
				e.ok(err)
				io.ReadFull(s, make([]byte, 10))
				e.ok(s.Close())
				s.Close()
			}
		}},
		{"FIFO", func(e *env) {
			e.sh("mkfifo p")
			_, err := e.stream("p", sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotRegular)
		}},
		{"directory", func(e *env) {
			_, err := e.stream("", sandbox.ReadOptions{})
			e.kind(err, sandbox.KindIsDirectory)
		}},
		{"missing", func(e *env) {
			_, err := e.stream("f", sandbox.ReadOptions{})
			e.kind(err, sandbox.KindNotFound)
		}},
	}...)
}
