package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// measure is what one run of one case gave. The unit of value is the case's
// own; seconds and bytes are of bulk cases.
type measure struct {
	seconds        float64
	bytes          int64
	client, server usage
	value          float64
	more           float64
}

func (m measure) rate() float64 { return float64(m.bytes) / m.seconds }

// cpuPerGiB is that of both sides.
func (m measure) cpuPerGiB() float64 {
	return (m.client.cpu + m.server.cpu) / float64(m.bytes) * (1 << 30)
}

// measures are those of one round, by case.
type measures map[string]measure

// trial is one case: something to run once a round.
type trial struct {
	name string
	run  func(context.Context) (measure, error)
}

// row is one line of the table: a figure out of the cases of one round, and
// what it must be.
type row struct {
	name   string
	size   string
	must   float64
	atMost bool // else at least
	bytes  bool // wrong bytes, not time: never excused
	told   bool // only told, beside another row: nothing must be met
	unit   string
	needs  []string // cases
	figure func(measures) float64
}

func (r row) met(v float64) bool {
	if r.told {
		return true
	}
	if r.atMost {
		return v <= r.must
	}
	return v >= r.must
}

// group is cases that take turns, and the rows made of them.
type group struct {
	name   string
	rounds int // at most; 0: as many as asked for
	before func(context.Context) error
	trials []trial
	rows   []row
}

// errMissing says that a reference is not installed.
var errMissing = errors.New("missing reference")

// result is what came of a row.
type result struct {
	row
	values []float64
	err    error
}

// select keeps the rows whose name contains filter, and their cases.
func (g group) pick(filter string) group {
	var rows []row
	var needs []string
	for _, r := range g.rows {
		if strings.Contains(r.name, filter) {
			rows = append(rows, r)
			needs = append(needs, r.needs...)
		}
	}
	g.rows = rows
	g.trials = slices.DeleteFunc(slices.Clone(g.trials), func(t trial) bool { return !slices.Contains(needs, t.name) })
	return g
}

// runGroup runs every case once a round, in an order that is reversed each
// round, and returns the rows. A case that failed is not run again.
func (b *bench) runGroup(ctx context.Context, g group) []result {
	rounds := b.rounds
	if g.rounds > 0 {
		rounds = min(rounds, g.rounds)
	}
	failed := map[string]error{}
	var all []measures
	for round := range rounds {
		b.logf("%s: round %d of %d", g.name, round+1, rounds)
		trials := slices.Clone(g.trials)
		if round%2 == 1 {
			slices.Reverse(trials)
		}
		got := measures{}
		for _, t := range trials {
			if failed[t.name] != nil || ctx.Err() != nil {
				continue
			}
			m, err := b.try(ctx, g, t)
			if err != nil {
				b.logf("%s: %v", t.name, err)
				failed[t.name] = err
				continue
			}
			got[t.name] = m
			b.note(t.name, m)
		}
		all = append(all, got)
	}
	return collect(ctx, g, all, failed)
}

func (b *bench) try(ctx context.Context, g group, t trial) (measure, error) {
	b.trial = t.name
	if g.before != nil {
		if err := g.before(ctx); err != nil {
			return measure{}, err
		}
	}
	return t.run(ctx)
}

// collect makes the rows of a group.
func collect(ctx context.Context, g group, all []measures, failed map[string]error) []result {
	var results []result
	for _, r := range g.rows {
		res := result{row: r, err: ctx.Err()}
		for _, need := range r.needs {
			if err := failed[need]; err != nil && res.err == nil {
				res.err = fmt.Errorf("%s: %w", need, err)
			}
		}
		for _, m := range all {
			if res.err == nil {
				res.values = append(res.values, r.figure(m))
			}
		}
		results = append(results, res)
	}
	return results
}

// The figures that rows are made of.

// speed is how many times the rate of other the rate of ours is.
func speed(ours, other string) func(measures) float64 {
	return func(m measures) float64 { return m[ours].rate() / m[other].rate() }
}

// cpu is the CPU time a byte of ours over that of other.
func cpu(ours, other string) func(measures) float64 {
	return func(m measures) float64 { return m[ours].cpuPerGiB() / m[other].cpuPerGiB() }
}

// over is the value of a over that of b.
func over(a, b string) func(measures) float64 {
	return func(m measures) float64 { return m[a].value / m[b].value }
}

// own is the value of one case.
func own(name string) func(measures) float64 {
	return func(m measures) float64 { return m[name].value }
}
