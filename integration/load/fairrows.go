package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/controld/controld/integration/load/worker"
)

// What a tenant asks for at once beside one that asks for one thing at a time.
const (
	rivalStreams = 64
	rivalExecs   = 1000
)

// beside runs a request as the tenant of all other rows, and another as its
// rival at the same time, each in a process of its own.
func (b *bench) beside(ctx context.Context, own, rival worker.Request) (mine, theirs worker.Reply, err error) {
	s, err := b.server(ctx, worker.Controld)
	if err != nil {
		return mine, theirs, err
	}
	c, err := b.newClient()
	if err != nil {
		return mine, theirs, err
	}
	defer c.end()
	own.Addr, own.Token, own.Stack = s.addr, b.secret, worker.Controld
	if rival.Op == "" {
		mine, err = c.do(ctx, own)
		return mine, theirs, err
	}
	other, err := b.newClient()
	if err != nil {
		return mine, theirs, err
	}
	defer other.end()
	rival.Addr, rival.Token, rival.Stack = s.addr, b.rival, worker.Controld
	var rivalErr error
	var both sync.WaitGroup
	both.Go(func() { theirs, rivalErr = other.do(ctx, rival) })
	mine, err = c.do(ctx, own)
	both.Wait()
	if err == nil {
		err = rivalErr
	}
	return mine, theirs, err
}

// fairStreams is the case of one stream beside many of another tenant; its
// value is the share of all bytes that the one gets.
func (b *bench) fairStreams(ctx context.Context) (measure, error) {
	source := filepath.Join(b.shm, "flow")
	if err := sparse(source, 4<<30); err != nil {
		return measure{}, err
	}
	defer os.Remove(source)
	req := worker.Request{Op: "flow", Remote: source, Count: 1, For: 2 * b.window()}
	many := req
	many.Count = rivalStreams
	mine, theirs, err := b.beside(ctx, req, many)
	return measure{value: float64(mine.Bytes) / float64(mine.Bytes+theirs.Bytes)}, err
}

// fairExecs is the case of commands one after another, beside a thousand of
// another tenant at once where there is a rival; its value is the 99th
// percentile in microseconds.
func (b *bench) fairExecs(rival bool) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		req := worker.Request{Op: "call", Call: "exec", InFlight: 1, For: 2 * b.window()}
		var many worker.Request
		if rival {
			// It begins before and ends behind what is measured.
			many = req
			many.InFlight, many.For = rivalExecs, req.For+2*time.Second
		}
		mine, _, err := b.beside(ctx, req, many)
		return measure{value: float64(mine.P99.Nanoseconds()) / 1e3}, err
	}
}

// fairness is the group about two tenants.
func (b *bench) fairness() group {
	return group{name: "tenants", trials: []trial{
		{"tenants' streams", b.fairStreams},
		{"tenant's commands alone", b.fairExecs(false)},
		{"tenants' commands", b.fairExecs(true)},
	}, rows: []row{
		{name: "one stream beside 64 of another tenant: share of the bytes", must: 0.4, needs: []string{"tenants' streams"}, figure: own("tenants' streams")},
		{name: "exec p99 beside 1,000 queued of another tenant vs alone", must: 3, atMost: true, unit: "x",
			needs: []string{"tenants' commands", "tenant's commands alone"}, figure: over("tenants' commands", "tenant's commands alone")},
	}}
}
