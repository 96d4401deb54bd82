package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

func cancelChecks() []check {
	calls := map[string]func(e *env, ctx context.Context) error{
		"read": func(e *env, ctx context.Context) error {
			_, err := e.b.ReadFileBuffer(ctx, e.p("f"), sandbox.ReadOptions{})
			return err
		},
		"write": func(e *env, ctx context.Context) error {
			_, err := e.b.WriteFile(ctx, e.p("new"), nil, sandbox.WriteOptions{})
			return err
		},
		"stat": func(e *env, ctx context.Context) error {
			_, err := e.b.Stat(ctx, e.p("f"), sandbox.StatOptions{})
			return err
		},
		"mkdir": func(e *env, ctx context.Context) error { return e.b.Mkdir(ctx, e.p("new"), sandbox.MkdirOptions{}) },
		"rm":    func(e *env, ctx context.Context) error { return e.b.Rm(ctx, e.p("f"), sandbox.RmOptions{}) },
		"exec": func(e *env, ctx context.Context) error {
			_, err := e.b.Exec(ctx, "echo > new", sandbox.ExecOptions{Cwd: e.dir})
			return err
		},
		"read stream": func(e *env, ctx context.Context) error {
			_, err := e.b.ReadFileStream(ctx, e.p("f"), sandbox.ReadOptions{})
			return err
		},
		"write stream": func(e *env, ctx context.Context) error {
			_, err := e.b.WriteFileStream(ctx, e.p("new"), strings.NewReader(""), sandbox.WriteOptions{})
			return err
		},
	}
	var checks []check
	for name, call := range calls {
		checks = append(checks, check{name + " of a context that has ended", func(e *env) {
			e.write("f", "x")
			ctx, cancel := context.WithCancel(e.ctx)
			cancel()
			err := call(e, ctx)
			e.kind(err, sandbox.KindCancelled)
			e.is(err, context.Canceled)
			e.only("f")
		}})
	}
	return append(checks,
		check{"write stream whose reader hangs", func(e *env) {
			e.write("f", "old")
			r, w := io.Pipe()
			defer w.Close()
			ctx, cancel := context.WithCancel(e.ctx)
			failed := make(chan error, 1)
			go func() {
				_, err := e.b.WriteFileStream(ctx, e.p("f"), r, sandbox.WriteOptions{})
				failed <- err
			}()
			w.Write([]byte("new"))
			cancel()
			e.kind(<-failed, sandbox.KindCancelled)
			e.equal(e.read("f"), "old")
			e.only("f")
		}},
		check{"read stream in the middle", func(e *env) {
			e.sh("truncate -s 500M f")
			ctx, cancel := context.WithCancel(e.ctx)
			s, err := e.b.ReadFileStream(ctx, e.p("f"), sandbox.ReadOptions{})
			e.ok(err)
			defer s.Close()
			_, err = io.ReadFull(s, make([]byte, 1<<20))
			e.ok(err)
			cancel()
			if _, err = io.Copy(io.Discard, s); err == nil {
				e.Fatal("a cancelled stream looked complete")
			}
		}},
		check{"exec that has begun", func(e *env) {
			ctx, cancel := context.WithCancel(e.ctx)
			failed := make(chan error, 1)
			go func() {
				_, err := e.b.Exec(ctx, "echo $$ > pids; sleep 50", sandbox.ExecOptions{Cwd: e.dir})
				failed <- err
			}()
			e.await("pids")
			cancel()
			e.kind(<-failed, sandbox.KindCancelled)
			e.gone()
		}})
}

func parallelChecks() []check {
	together := func(e *env, n int, f func(i int) error) {
		e.Helper()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := f(i); err != nil {
					e.Error(err)
				}
			})
		}
		wg.Wait()
	}
	return []check{
		{"writers of one file", func(e *env) {
			together(e, 16, func(i int) error {
				_, err := e.b.WriteFile(e.ctx, e.p("f"), bytes.Repeat([]byte{byte('a' + i)}, 10000), sandbox.WriteOptions{})
				return err
			})
			got := e.read("f")
			if len(got) != 10000 || strings.Trim(got, got[:1]) != "" {
				e.Fatal("a mixture of two writes")
			}
			e.only("f")
		}},
		{"one if_match wins", func(e *env) {
			tag := e.write("f", "start").ETag
			var mu sync.Mutex
			won := 0
			together(e, 16, func(i int) error {
				_, err := e.b.WriteFile(e.ctx, e.p("f"), []byte{byte(i)}, sandbox.WriteOptions{IfMatch: tag})
				if err == nil {
					mu.Lock()
					won++
					mu.Unlock()
				} else if sandbox.KindOf(err) != sandbox.KindConflict {
					return err
				}
				return nil
			})
			e.equal(won, 1)
		}},
		{"readers see old or new, whole", func(e *env) {
			a, b := strings.Repeat("a", 100000), strings.Repeat("b", 100000)
			e.write("f", a)
			together(e, 8, func(i int) error {
				for range 20 {
					if i%2 == 0 {
						if _, err := e.b.WriteFile(e.ctx, e.p("f"), []byte(map[bool]string{true: a, false: b}[i%4 == 0]), sandbox.WriteOptions{}); err != nil {
							return err
						}
						continue
					}
					c, err := e.b.ReadFileBuffer(e.ctx, e.p("f"), sandbox.ReadOptions{})
					if err != nil {
						return err
					}
					if s := string(c.Data); s != a && s != b {
						return fmt.Errorf("read %d bytes of a mixture", len(s))
					}
				}
				return nil
			})
		}},
		{"executables written and run", func(e *env) {
			together(e, 8, func(i int) error {
				name := fmt.Sprintf("x%d", i)
				for j := range 20 {
					script := fmt.Sprintf("#!/bin/sh\necho %d.%d\n", i, j)
					if _, err := e.b.WriteFile(e.ctx, e.p(name), []byte(script), sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o755))}); err != nil {
						return err
					}
					res, err := e.b.Exec(e.ctx, "./"+name, sandbox.ExecOptions{Cwd: e.dir})
					if err != nil {
						return err
					}
					if want := fmt.Sprintf("%d.%d\n", i, j); string(res.Stdout) != want {
						return fmt.Errorf("got %q %q, want %q", res.Stdout, res.Stderr, want)
					}
				}
				return nil
			})
		}},
		{"commands do not mix their output", func(e *env) {
			together(e, 16, func(i int) error {
				for range 5 {
					res, err := e.b.Exec(e.ctx, fmt.Sprintf("echo %d; echo e%d >&2; exit %d", i, i, i), sandbox.ExecOptions{})
					if err != nil {
						return err
					}
					if string(res.Stdout) != fmt.Sprintf("%d\n", i) || string(res.Stderr) != fmt.Sprintf("e%d\n", i) || res.ExitCode != i {
						return fmt.Errorf("%d got %q %q %d", i, res.Stdout, res.Stderr, res.ExitCode)
					}
				}
				return nil
			})
		}},
		{"mkdir recursive of one tree", func(e *env) {
			together(e, 16, func(int) error {
				return e.b.Mkdir(e.ctx, e.p("a/b/c/d"), sandbox.MkdirOptions{Recursive: true})
			})
		}},
		{"streams both ways", func(e *env) {
			together(e, 12, func(i int) error {
				name := fmt.Sprintf("f%d", i)
				want := pattern(1<<20 + i)
				if _, err := e.b.WriteFileStream(e.ctx, e.p(name), bytes.NewReader(want), sandbox.WriteOptions{}); err != nil {
					return err
				}
				s, err := e.b.ReadFileStream(e.ctx, e.p(name), sandbox.ReadOptions{})
				if err != nil {
					return err
				}
				defer s.Close()
				got, err := io.ReadAll(s)
				if err == nil && !bytes.Equal(got, want) {
					err = errors.New("bytes differ")
				}
				return err
			})
		}},
	}
}
