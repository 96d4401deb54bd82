package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/controld/controld/integration/load/worker"
)

// source is text as agents read it.
//
//go:embed refs.go
var source []byte

// callCase is one kind of call on one stack.
type callCase struct {
	stack, call string
	size        int64 // of the content, where there is one
	inFlight    int
}

func (c callCase) name() string {
	name := c.stack + " " + c.call
	if c.size > 0 {
		name += " " + humanize.IBytes(uint64(c.size))
	}
	if c.inFlight > 1 {
		name += fmt.Sprintf(" x%d", c.inFlight)
	}
	return name
}

// caller is the one client process of all calls.
func (b *bench) caller() (*client, error) {
	if b.calling == nil {
		c, err := b.newClient()
		if err != nil {
			return nil, err
		}
		b.calling = c
	}
	return b.calling, nil
}

// trial returns the case; its value is the median in microseconds, or the
// calls a second where several are in flight.
func (b *bench) callTrial(cc callCase) trial {
	return trial{cc.name(), func(ctx context.Context) (measure, error) {
		c, err := b.caller()
		if err != nil {
			return measure{}, err
		}
		s := &server{process: c.process}
		if cc.stack != worker.Local {
			if s, err = b.server(ctx, cc.stack); err != nil {
				return measure{}, err
			}
		}
		path, err := b.callFile(cc)
		if err != nil {
			return measure{}, err
		}
		reply, m, err := b.ask(ctx, c, s, worker.Request{Op: "call", Stack: cc.stack, Call: cc.call, Remote: path,
			Size: cc.size, InFlight: max(cc.inFlight, 1), For: b.window()})
		if m.value = float64(reply.P50.Nanoseconds()) / 1e3; cc.inFlight > 1 {
			m.value = reply.PerSec
		}
		return m, err
	}}
}

// window is how long a call is repeated.
func (b *bench) window() time.Duration {
	if b.prof != "" {
		return 2 * time.Second
	}
	if b.quick {
		return 150 * time.Millisecond
	}
	return time.Second
}

// callFile makes the file that a call works on: text up to 50 KiB, as of
// source code, bytes that are no text above.
func (b *bench) callFile(cc callCase) (string, error) {
	path := filepath.Join(b.shm, fmt.Sprintf("file-%d", cc.size))
	if cc.call == "write" {
		return path + "-" + cc.stack, nil
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	piece := source
	if cc.size >= 1<<20 {
		piece = []byte{0xff, 0, 1, 2, '"'}
	}
	content := bytes.Repeat(piece, int(cc.size)/len(piece)+1)[:cc.size]
	return path, os.WriteFile(path, content, 0o644)
}

// versus returns the row of two cases.
func (b *bench) versus(name string, a, other callCase, must float64, atMost bool) row {
	size := ""
	if a.size > 0 {
		size = humanize.IBytes(uint64(a.size))
	}
	return row{name: name, size: size, must: must, atMost: atMost, unit: "x", needs: []string{a.name(), other.name()},
		figure: over(a.name(), other.name())}
}

// told is a row that stands beside another to explain it.
func told(r row) row {
	r.told = true
	return r
}

// calls is the group of the small calls, one and many at a time.
func (b *bench) calls() group {
	const kib50 = 50 << 10
	stat := func(stack string) callCase { return callCase{stack: stack, call: "stat"} }
	busy := func(stack string, n int) callCase { return callCase{stack: stack, call: "stat", inFlight: n} }
	read := func(stack string) callCase { return callCase{stack: stack, call: "read", size: kib50} }
	ours := worker.Controld
	stream := callCase{stack: ours, call: "stream", size: kib50}
	bareStream := callCase{stack: bare, call: "stream", size: kib50}
	bareShared := callCase{stack: bare, call: "shared stream", size: kib50}
	g := group{name: "calls", rows: []row{
		b.versus("stat p50 vs gRPC-Go unary", stat(ours), stat(grpcGo), 0.8, true),
		b.versus("stat p50 vs bare jsonrpc2", stat(ours), stat(rpc2), 0.8, true),
		b.versus("small calls/s, 16 in flight, vs gRPC-Go", busy(ours, 16), busy(grpcGo, 16), 1.2, false),
		b.versus("small calls/s, 256 in flight, vs gRPC-Go", busy(ours, 256), busy(grpcGo, 256), 1.2, false),
		b.versus("buffered read p50 vs gRPC-Go unary with bytes", read(ours), read(grpcGo), 1.0, true),
		b.versus("short stream p50 vs keep-alive GET of net/http", stream, read(netHTTP), 1.5, true),
		// What a connection of its own costs without any protocol.
		told(b.versus("short stream p50 vs bare new connection", stream, read(bare), 1, true)),
		told(b.versus("short stream p50 vs bare mint, new connection and verdict", stream, bareStream, 1, true)),
		told(b.versus("short stream p50 vs the same three steps on a shared connection", stream, bareShared, 1, true)),
		told(b.versus("short stream's floor: the three steps on a shared connection, p50 vs keep-alive GET", bareShared, read(netHTTP), 1, true)),
		told(b.versus("short stream's floor: bare mint, new connection and verdict, p50 vs keep-alive GET", bareStream, read(netHTTP), 1, true)),
		told(b.versus("short stream's floor: bare new connection p50 vs keep-alive GET", read(bare), read(netHTTP), 1, true)),
	}}
	for _, stack := range []string{ours, grpcGo, rpc2} {
		g.trials = append(g.trials, b.callTrial(stat(stack)))
	}
	for _, stack := range []string{ours, grpcGo} {
		g.trials = append(g.trials, b.callTrial(busy(stack, 16)), b.callTrial(busy(stack, 256)), b.callTrial(read(stack)))
	}
	g.trials = append(g.trials, b.callTrial(stream), b.callTrial(read(netHTTP)), b.callTrial(read(bare)), b.callTrial(bareStream), b.callTrial(bareShared))
	return g
}

// buffered is the group of the large buffered calls.
func (b *bench) buffered() group {
	g := group{name: "buffered"}
	for _, size := range []int64{1 << 20, 8 << 20} {
		for _, call := range []string{"read", "write"} {
			ours, other := callCase{stack: worker.Controld, call: call, size: size}, callCase{stack: rpc2, call: call, size: size}
			g.trials = append(g.trials, b.callTrial(ours), b.callTrial(other))
			// How many times longer the other takes.
			g.rows = append(g.rows, b.versus("buffered "+call+" p50, times faster than bare jsonrpc2 with base64, "+humanize.IBytes(uint64(size)),
				other, ours, 5, false))
		}
	}
	return g
}

// dockerExecs is the group of commands beside those of docker, whose engine
// stays up from then on.
func (b *bench) dockerExecs() group {
	ours := callCase{stack: worker.Controld, call: "exec"}
	return group{name: "docker exec", trials: []trial{b.callTrial(ours), {"docker exec", b.dockerExec}}, rows: []row{
		{name: "exec of sh -c true, captured, p50, times faster than docker exec", must: 40, unit: "x", needs: []string{ours.name(), "docker exec"},
			figure: over("docker exec", ours.name())}}}
}

// execs is the group of commands.
func (b *bench) execs() group {
	one := func(stack string) callCase { return callCase{stack: stack, call: "exec"} }
	eight := func(stack string) callCase { return callCase{stack: stack, call: "exec", inFlight: 8} }
	ours := worker.Controld
	return group{name: "exec", trials: []trial{
		b.callTrial(one(ours)), b.callTrial(one(worker.Local)), b.callTrial(eight(ours)), b.callTrial(eight(worker.Local)), b.callTrial(one(bare)), b.callTrial(eight(bare)),
	}, rows: []row{
		b.versus("exec of sh -c true, captured, p50 vs local os/exec", one(ours), one(worker.Local), 1.25, true),
		b.versus("exec starts/s, 8 at once, vs local os/exec", eight(ours), eight(worker.Local), 0.80, false),
		// What another process on the way costs, whatever it is.
		told(b.versus("exec's floor: os/exec behind a bare connection, p50 vs local os/exec", one(bare), one(worker.Local), 1, true)),
		told(b.versus("exec's floor: os/exec behind bare connections, starts/s, 8 at once, vs local os/exec", eight(bare), eight(worker.Local), 1, false)),
	}}
}
