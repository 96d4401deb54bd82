package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/controld/controld/sandbox"
)

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
			e.dead()
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
