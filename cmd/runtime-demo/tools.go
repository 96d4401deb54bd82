package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/controld/controld/sandbox"
)

// result is a tool's answer: line for the transcript, text for the model.
type result struct {
	line, text string
}

// toolbox holds what tools work with.
type toolbox struct {
	env       *sandbox.SessionEnv
	pack      *input
	bars      io.Writer // progress goes here, on a terminal alone
	minStream int64
	up, down  traffic
}

// traffic counts streamed bytes and the time they took.
type traffic struct{ bytes, nanos atomic.Int64 }

func (t *traffic) add(n int64, took time.Duration) {
	t.bytes.Add(n)
	t.nanos.Add(int64(took))
}

// toolArgs are the arguments of every tool.
type toolArgs struct {
	Path    string  `json:"path"`
	Content string  `json:"content"`
	Command string  `json:"command"`
	Timeout float64 `json:"timeout_s"`
	// Repeat (upload) sends the input again and again, up to the size that
	// -stream asks for.
	Repeat bool `json:"repeat"`
}

// tool is one thing an agent can do.
type tool struct {
	name, about string
	required    []string
	run         func(t *toolbox, ctx context.Context, a toolArgs) result
}

func allTools() []tool {
	return []tool{
		{"read_file", "Read a text file.", []string{"path"}, (*toolbox).readFile},
		{"write_file", "Write a text file, making its directories.", []string{"path", "content"}, (*toolbox).writeFile},
		{"list", "List a directory.", []string{"path"}, (*toolbox).list},
		{"exec", "Run a shell command.", []string{"command"}, (*toolbox).exec},
		{"upload", "Stream the input into the sandbox.", []string{"path"}, (*toolbox).upload},
		{"download", "Stream a file out of the sandbox.", []string{"path"}, (*toolbox).download},
	}
}

// run runs one call. A call that makes no sense is a result like any other:
// the model is told and may try again.
func (t *toolbox) run(ctx context.Context, c call) result {
	var a toolArgs
	dec := json.NewDecoder(bytes.NewReader(c.Args))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return result{line: "error malformed_arguments", text: "error: malformed arguments: " + err.Error()}
	}
	for _, tl := range allTools() {
		if tl.name == c.Tool {
			return tl.run(t, ctx, a)
		}
	}
	return result{line: "error unknown_tool", text: "error: no such tool: " + c.Tool}
}

func failed(err error) result {
	return result{line: "error " + string(sandbox.KindOf(err)), text: "error: " + err.Error()}
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%.8x", sha256.Sum256(b)) }

func (t *toolbox) readFile(ctx context.Context, a toolArgs) result {
	s, err := t.env.ReadFile(ctx, a.Path, sandbox.ReadOptions{})
	if err != nil {
		return failed(err)
	}
	return result{line: fmt.Sprintf("%d bytes %s", len(s), digest([]byte(s))), text: shorten(s, 16<<10)}
}

func (t *toolbox) writeFile(ctx context.Context, a toolArgs) result {
	info, err := t.env.WriteFile(ctx, a.Path, []byte(a.Content), sandbox.WriteOptions{})
	if err != nil {
		return failed(err)
	}
	line := fmt.Sprintf("%d bytes written", info.Bytes)
	return result{line: line, text: line}
}

func (t *toolbox) list(ctx context.Context, a toolArgs) result {
	l, err := t.env.ReadDir(ctx, a.Path, sandbox.ReadDirOptions{})
	if err != nil {
		return failed(err)
	}
	all := strings.Join(l.Names, "\n")
	return result{line: fmt.Sprintf("%d entries %s", len(l.Names), digest([]byte(all))), text: shorten(all, 16<<10)}
}

func (t *toolbox) exec(ctx context.Context, a toolArgs) result {
	opts := sandbox.ExecOptions{Timeout: time.Duration(a.Timeout * float64(time.Second))}
	res, err := t.env.Exec(ctx, a.Command, opts)
	if err != nil {
		return failed(err)
	}
	line := fmt.Sprintf("exit %d (%s), stdout %d bytes %s, stderr %d bytes", res.ExitCode, res.Reason,
		int64(len(res.Stdout))+res.StdoutOmitted, digest(res.Stdout), int64(len(res.Stderr))+res.StderrOmitted)
	if out := strings.TrimSpace(string(res.Stdout)); out != "" && len(out) <= 60 && !strings.Contains(out, "\n") {
		line += ": " + out
	}
	return result{line: line, text: shorten(string(res.Stdout)+string(res.Stderr), 16<<10) + fmt.Sprintf("\n[exit %d]", res.ExitCode)}
}

func (t *toolbox) upload(ctx context.Context, a toolArgs) result {
	least := int64(0)
	if a.Repeat {
		least = t.minStream
	}
	r, size := t.pack.repeated(least)
	sum := sha256.New()
	counted := &countReader{r: io.TeeReader(r, sum)}
	stop := t.progress("up   "+a.Path, size, counted.n.Load)
	start := time.Now()
	info, err := t.env.WriteFileStream(ctx, a.Path, counted, sandbox.WriteOptions{Size: sandbox.Some(size), Digest: true})
	stop()
	if err != nil {
		return failed(err)
	}
	t.up.add(info.Bytes, time.Since(start))
	line := fmt.Sprintf("%d bytes in, sha256:%x verified", info.Bytes, sum.Sum(nil))
	return result{line: line, text: line}
}

func (t *toolbox) download(ctx context.Context, a toolArgs) result {
	start := time.Now()
	s, err := t.env.ReadFileStream(ctx, a.Path, sandbox.ReadOptions{Digest: true})
	if err != nil {
		return failed(err)
	}
	defer s.Close()
	size, _ := s.Length()
	stop := t.progress("down "+a.Path, size, s.Sent)
	n, err := io.Copy(io.Discard, s)
	stop()
	if err != nil {
		return failed(err)
	}
	t.down.add(n, time.Since(start))
	line := fmt.Sprintf("%d bytes out, sha256:%s verified", n, s.Verdict().SHA256)
	return result{line: line, text: line}
}

// countReader counts what was read through it.
type countReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// progress shows a bar on a terminal until stop is called.
func (t *toolbox) progress(name string, total int64, now func() int64) (stop func()) {
	f, ok := t.bars.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}
	}
	bars := mpb.New(mpb.WithOutput(f), mpb.WithWidth(48))
	bar := bars.AddBar(total, mpb.PrependDecorators(decor.Name(name+" "), decor.CountersKibiByte("% .1f / % .1f")),
		mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), " % .1f")))
	ticker := time.NewTicker(100 * time.Millisecond)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				bar.SetCurrent(now())
			case <-quit:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(quit)
		<-ended
		bar.SetTotal(now(), true)
		bars.Wait()
	}
}
