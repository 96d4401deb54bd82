package hostileagent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/controld/controld/integration/hostileagent"
	"github.com/controld/controld/sandbox"
)

// TestEndpointsOfAnAgent: nothing is dialled but the agent, whatever addresses
// it names.
func TestEndpointsOfAnAgent(t *testing.T) {
	var dialled atomic.Int32
	named := func(network, address string) string {
		ln, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				dialled.Add(1)
				c.Close()
			}
		}()
		return ln.Addr().String()
	}
	for _, url := range []string{"tcp://" + named("tcp", "127.0.0.1:0"), "tls://" + named("tcp", "127.0.0.1:0"),
		"unix://" + named("unix", filepath.Join(t.TempDir(), "s")), "mux:", "http://x", ""} {
		for _, files := range []bool{false, true} {
			transfer := hostileagent.Transfer("read", hostileagent.Token, url)
			s := newStage(t, hostileagent.Script{Files: files, Results: map[string]string{
				"hello":             strings.Replace(hostileagent.Hello("exec", "plain_data"), "unix:///d", url, 1),
				"read_file_stream":  `{"transfer":` + transfer + `,"size":5,"length":5}`,
				"read_file":         `{"transfer":` + transfer + `,"size":5,"length":5}`,
				"write_file_stream": `{"transfer":` + strings.Replace(transfer, "read", "write", 1) + `}`,
			}}, files)
			for _, call := range []func(context.Context, sandbox.Backend) error{readStream, readFile, writeStream} {
				if err := s.call(soon, call); err != nil {
					t.Errorf("%q: %v", url, err)
				}
			}
		}
	}
	if n := dialled.Load(); n > 0 {
		t.Errorf("%d connections were made to what the agent named", n)
	}
}

// TestEndlessLine: a line without an end is read up to the host's own limit,
// whatever limit the agent names for itself.
func TestEndlessLine(t *testing.T) {
	most := sandbox.DefaultLimits().MaxMessageBytes + 4<<20 // what sockets hold
	var said atomic.Int64
	endless := func(w io.Writer, id string) bool {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"type":"`, id)
		text := []byte(strings.Repeat("x", 64<<10))
		for said.Load() < 1<<30 {
			n, err := w.Write(text)
			said.Add(int64(n))
			if err != nil {
				return false
			}
		}
		return false
	}
	s := newStage(t, saying("stat", endless), false)
	if err := s.call(soon, stat); !isLost(err) {
		t.Errorf("%v", err)
	}
	if n := said.Load(); n > most {
		t.Errorf("the host took %d bytes of one line", n)
	}
	s.othersAnswer()
}

func isLost(err error) bool {
	return sandbox.KindOf(err) == sandbox.KindConnectionLost || sandbox.KindOf(err) == sandbox.KindUnavailable
}

// TestLongAnswersAreDropped: content beyond what was asked for is not kept until
// somebody else has looked at it, nor is the room for a long line.
func TestLongAnswersAreDropped(t *testing.T) {
	const long, hosts = 24 << 20, 4
	text := strings.Repeat("x", long)
	script := hostileagent.Script{Results: map[string]string{
		"read_file": `{"content":{"text":"` + text + `"},"size":5}`,
		"exec":      `{"exit_code":0,"reason":"exited","stdout":{"text":"` + text + `"}}`,
		"stat":      `{"type":"` + text + `"}`,
	}}
	var before, after runtime.MemStats
	var stages []*stage
	for range hosts {
		stages = append(stages, newStage(t, script, false))
		stages[len(stages)-1].othersAnswer()
	}
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, s := range stages {
		for _, call := range []func(context.Context, sandbox.Backend) error{readAll, execute} {
			if err := s.call(soon, call); sandbox.KindOf(err) != sandbox.KindInternal {
				t.Errorf("%v", err)
			}
		}
		if err := s.call(soon, stat); err != nil { // a type that is not known is "other"
			t.Error(err)
		}
	}
	runtime.GC()
	runtime.GC() // pools let go at the second
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > long {
		t.Errorf("%d MiB are held by %d links", grown>>20, hosts)
	}
	for _, s := range stages {
		s.othersAnswer()
	}
}
