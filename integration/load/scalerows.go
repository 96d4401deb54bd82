package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/controld/controld/integration/load/worker"
)

const mib = 1 << 20

// scale are the sizes of the rows about numbers and memory.
type scale struct {
	single                 int64 // one transfer
	many                   int   // transfers at once
	paced, unpaced, pace   int64 // bytes each, and a second
	idle, idleTLS          int   // connections
	mixed                  int64 // bytes of one of the mixed transfers
	mixedPace              int64
	mixedTime, settledTime time.Duration
}

func (b *bench) scale() scale {
	if b.quick {
		return scale{single: 256 * mib, many: 200, paced: mib / 2, unpaced: 4 * mib, pace: mib / 2, idle: 500, idleTLS: 500,
			mixed: 2 * mib, mixedPace: 2 * mib, mixedTime: time.Minute, settledTime: 200 * time.Millisecond}
	}
	return scale{single: 8 << 30, many: 1000, paced: 5 * mib, unpaced: 4 * mib, pace: mib / 2, idle: 5000, idleTLS: 1000,
		mixed: 512 * mib, mixedPace: 16 * mib, mixedTime: 15 * time.Minute, settledTime: 2 * time.Second}
}

func random(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, rand.Reader, size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// fresh runs one request against a daemon and a client that have done nothing
// but one small call; what they use afterwards is over that.
func (b *bench) fresh(ctx context.Context, req worker.Request) (worker.Reply, measure, error) {
	s, err := b.daemon(ctx, req.Stack)
	if err != nil {
		return worker.Reply{}, measure{}, err
	}
	defer s.end()
	c, err := b.newClient()
	if err != nil {
		return worker.Reply{}, measure{}, err
	}
	defer c.end()
	if _, err := c.do(ctx, worker.Request{Op: "call", Stack: req.Stack, Addr: s.addr, Token: b.secret, Identity: b.pair, Call: "stat", Remote: "/", InFlight: 1}); err != nil {
		return worker.Reply{}, measure{}, err
	}
	idleC, idleS := usageOf(c.pid()).rss, usageOf(s.pid()).rss
	reply, m, err := b.ask(ctx, c, s, req)
	if req.Op == "idle" {
		time.Sleep(b.scale().settledTime)
		m.server = usageOf(s.pid())
	}
	m.client.peak -= idleC
	m.server.peak -= idleS
	m.server.rss -= idleS
	return reply, m, err
}

// single returns the case of one transfer; its value is the memory over idle
// in MiB, of the side that took more.
func (b *bench) single(op string) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		source, size := filepath.Join(b.shm, "single"), b.scale().single
		if err := sparse(source, size); err != nil {
			return measure{}, err
		}
		defer os.Remove(source)
		defer os.Remove(b.target())
		req := worker.Request{Op: op, Stack: worker.Controld, Remote: source, Local: os.DevNull, Size: size, Timeout: b.patience(size)}
		if op == "up" {
			req.Remote, req.Local = b.target(), source
		}
		_, m, err := b.fresh(ctx, req)
		m.value = float64(max(m.client.peak, m.server.peak)) / mib
		return m, err
	}
}

// manyCase returns the case of many transfers at once; its value is Jain's
// index, more the bytes lost.
func (b *bench) manyCase(size, pace int64) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		path := filepath.Join(b.shm, "many")
		if err := random(path, size); err != nil {
			return measure{}, err
		}
		defer os.Remove(path)
		reply, m, err := b.fresh(ctx, worker.Request{Op: "many", Stack: worker.Controld, Remote: path, Local: path, Size: size,
			Count: b.scale().many, Rate: pace, Timeout: 2 * time.Minute})
		m.value, m.more, m.seconds = reply.Jain, float64(reply.Lost), reply.Took.Seconds()
		return m, err
	}
}

// memory is the group about one large transfer and many at once.
func (b *bench) memory() group {
	s := b.scale()
	one, many := humanize.IBytes(uint64(s.single)), func(size int64) string { return fmt.Sprintf("%d x %s", s.many, humanize.IBytes(uint64(size))) }
	lost := func(name string) func(measures) float64 { return func(m measures) float64 { return m[name].more } }
	peak := func(m measures) float64 { return float64(m["many paced"].server.peak) / mib }
	return group{name: "memory", trials: []trial{
		{"one transfer down", b.single("down")},
		{"one transfer up", b.single("up")},
		{"many paced", b.manyCase(s.paced, s.pace)},
		{"many unpaced", b.manyCase(s.unpaced, 0)},
	}, rows: []row{
		{name: "peak RSS over idle, one transfer down", size: one, must: 8, atMost: true, unit: " MiB", needs: []string{"one transfer down"}, figure: own("one transfer down")},
		{name: "peak RSS over idle, one transfer up", size: one, must: 8, atMost: true, unit: " MiB", needs: []string{"one transfer up"}, figure: own("one transfer up")},
		{name: "peak RSS over idle, paced transfers", size: many(s.paced), must: 48, atMost: true, unit: " MiB", needs: []string{"many paced"}, figure: peak},
		{name: "paced transfers: bytes lost", size: many(s.paced), atMost: true, bytes: true, needs: []string{"many paced"}, figure: lost("many paced")},
		{name: "unpaced transfers: bytes lost", size: many(s.unpaced), atMost: true, bytes: true, needs: []string{"many unpaced"}, figure: lost("many unpaced")},
		{name: "paced transfers: Jain index", size: many(s.paced), must: 0.999, needs: []string{"many paced"}, figure: own("many paced")},
		{name: "unpaced transfers: Jain index", size: many(s.unpaced), must: 0.90, needs: []string{"many unpaced"}, figure: own("many unpaced")},
	}}
}

// idle is the group about connections that do nothing.
func (b *bench) idle() group {
	g := group{name: "idle"}
	for _, c := range []struct {
		stack, kind string
		count       int
		must        float64
	}{{worker.Controld, "idle", b.scale().idle, 12}, {worker.ControldTLS, "idle TLS", b.scale().idleTLS, 40}} {
		name := c.kind + " connection"
		g.trials = append(g.trials, trial{name, b.idleCase(c.stack, c.count)})
		g.rows = append(g.rows, row{name: "RSS of an " + name + " after one call", size: fmt.Sprintf("%d connections", c.count),
			must: c.must, atMost: true, unit: " KiB", needs: []string{name}, figure: own(name)})
	}
	return g
}

// idleCase returns the case of so many connections; its value is the memory of
// one in KiB.
func (b *bench) idleCase(stack string, count int) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		_, m, err := b.fresh(ctx, worker.Request{Op: "idle", Stack: stack, Remote: "/", Count: count})
		m.value = float64(m.server.rss) / float64(count) / 1024
		return m, err
	}
}

// mixedCount is how many transfers the mixed load has.
const mixedCount = 64

// mixedLoad is the group that looks at bytes alone.
func (b *bench) mixedLoad() group {
	s := b.scale()
	run := func(ctx context.Context) (measure, error) {
		path := filepath.Join(b.temp, "mixed")
		if err := random(path, s.mixed+mixedCount*4096); err != nil {
			return measure{}, err
		}
		defer os.Remove(path)
		reply, m, err := b.fresh(ctx, worker.Request{Op: "mixed", Stack: worker.Controld, Local: path, Remote: b.temp, Size: s.mixed,
			Count: mixedCount, Rate: s.mixedPace, Timeout: s.mixedTime})
		m.seconds, m.bytes = reply.Took.Seconds(), reply.Bytes
		m.more = max(0, float64(s.mixed*mixedCount-reply.Bytes))
		return m, err
	}
	return group{name: "mixed", rounds: 1, trials: []trial{{"mixed load", run}}, rows: []row{{
		name: "mixed load, half up, half slowed, every digest right: bytes missing", size: fmt.Sprintf("%d x %s", mixedCount, humanize.IBytes(uint64(s.mixed))),
		atMost: true, bytes: true, needs: []string{"mixed load"}, figure: func(m measures) float64 { return m["mixed load"].more }}}}
}

// groups are all of them, in the order they run.
func (b *bench) groups() []group {
	return []group{b.calls(), b.buffered(), b.execs(), b.idle(), b.fairness(), b.memory(), b.dockerExecs(), b.bulk(), b.recv(), b.tls(), b.durable(), b.mixedLoad()}
}
