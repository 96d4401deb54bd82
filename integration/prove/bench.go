package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/controld/controld/integration/prove/goals"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
)

// bench is one run of the program.
type bench struct {
	options
	tree   string
	origin origin
	ground *ground.Ground // nil where a copy will be tried
	file   *proof.File
}

func newBench(ctx context.Context, o options) (*bench, error) {
	tree, err := ground.Tree(ctx)
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, tree: tree, origin: originOf(ctx, tree), file: proof.NewFile(o.out)}
	if o.resume {
		if b.file, err = proof.OpenFile(o.out); errors.Is(err, os.ErrNotExist) {
			b.file, err = proof.NewFile(o.out), nil
		}
	}
	if err == nil && o.mutant == "" {
		b.ground, err = ground.New(ctx, tree)
	}
	return b, err
}

func (b *bench) close() {
	if b.ground != nil {
		b.ground.Close()
	}
}

// chosen returns the goals that were asked for.
func (b *bench) chosen() ([]proof.Goal, error) {
	all := goals.All(b.ground)
	if b.goal == "" {
		return all, nil
	}
	for _, g := range all {
		if g.ID == b.goal {
			return []proof.Goal{g}, nil
		}
	}
	return nil, fmt.Errorf("there is no goal %s", b.goal)
}

// all tries one goal after another.
func (b *bench) all(ctx context.Context) (int, error) {
	chosen, err := b.chosen()
	if err != nil {
		return 2, err
	}
	code := 0
	for _, g := range chosen {
		r, err := b.tryGoal(ctx, g)
		if err != nil {
			return 2, err
		}
		if b.quick && g.Mutant != "" {
			if err := b.control(ctx, g, &r); err != nil {
				return 2, err
			}
		}
		if err := b.tell(g, r); err != nil {
			return 2, err
		}
		code = worse(code, r.Verdict)
	}
	return code, nil
}

// exitShort is the exit code where nothing was violated and something was not
// seen often enough to prove much, as on a machine that has much else to do.
const exitShort = 3

// worse returns the exit code behind one more verdict.
func worse(code int, verdict string) int {
	switch {
	case verdict == proof.Held || verdict == proof.LeftOut || code == 1:
		return code
	case verdict == proof.Short:
		return exitShort
	}
	return 1
}

// blank is the record of a run that has not begun.
func (b *bench) blank(g proof.Goal) proof.Record {
	n := b.n
	if n == 0 {
		n = g.Quick
	}
	return proof.Record{Goal: g.ID, Promise: g.Promise, Verdict: proof.Running, Commit: b.origin.commit, Dirty: b.origin.dirty,
		Mutant: b.broken, Seed: b.seed, Points: n, Race: raceDetector, Machine: machine()}
}

// tryGoal tries a goal, from where an earlier run of it has ended.
func (b *bench) tryGoal(ctx context.Context, g proof.Goal) (proof.Record, error) {
	r := b.blank(g)
	if earlier, ok := b.file.Earlier(r); ok {
		if earlier.Verdict != proof.Running {
			return earlier, nil
		}
		r = earlier
	}
	spent, began := r.Seconds, time.Now()
	update := func(done int, t proof.Tally) {
		r.Done, r.Tally, r.Seconds = done, t, spent+time.Since(began).Seconds()
	}
	pass := proof.Run{Goal: g, Seed: r.Seed, From: r.Done, To: r.Points, Tally: r.Tally, Saved: func(done int, t proof.Tally) {
		update(done, t)
		if err := b.file.Put(r); err != nil {
			fmt.Fprintln(os.Stderr, "prove:", err)
		}
	}}
	t, err := pass.Do(ctx)
	var lacking proof.Lacking
	if errors.As(err, &lacking) {
		r.Verdict, r.Missing = proof.LeftOut, []string{lacking.Error()}
		return r, nil
	}
	if err != nil {
		return r, err
	}
	update(r.Points, t)
	r.Conclude(g)
	return r, nil
}

// tell writes the line of a goal, and what is needed to see its violations
// again.
func (b *bench) tell(g proof.Goal, r proof.Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", line)
	for _, v := range r.Violations {
		fmt.Fprintf(os.Stderr, "%s point %d: %s\n\tagain: go run ./integration/prove -goal %s -seed %d -point %d\n", r.Goal, v.Point, v.What, r.Goal, r.Seed, v.Point)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(os.Stderr, "%s: %s\n", r.Goal, m)
	}
	return b.file.Put(r)
}

// replay tries a point of a line again.
func (b *bench) replay(ctx context.Context) (int, error) {
	at := strings.LastIndexByte(b.options.replay, ':')
	if at < 0 {
		return 2, errors.New("-replay wants FILE:LINE")
	}
	line, err := strconv.Atoi(b.options.replay[at+1:])
	if err != nil {
		return 2, errors.New("-replay wants FILE:LINE")
	}
	file, err := proof.OpenFile(b.options.replay[:at])
	if err != nil {
		return 2, err
	}
	r, err := file.Line(line)
	if err != nil {
		return 2, err
	}
	point := b.point
	if point < 0 {
		if len(r.Violations) == 0 {
			return 2, errors.New("that line has no violation; -point names a point")
		}
		point = r.Violations[0].Point
	}
	return b.onePoint(ctx, r.Goal, r.Seed, point)
}

// onePoint tries a point alone.
func (b *bench) onePoint(ctx context.Context, goal string, seed uint64, point int) (int, error) {
	b.options.goal, b.options.seed = goal, seed
	chosen, err := b.chosen()
	if err != nil {
		return 2, err
	}
	if len(chosen) != 1 {
		return 2, errors.New("-point wants -goal")
	}
	r := b.blank(chosen[0])
	began := time.Now()
	r.Tally, err = proof.Run{Goal: chosen[0], Seed: seed, From: point, To: point + 1}.Do(ctx)
	if err != nil {
		return 2, err
	}
	r.Points, r.Done, r.Seconds, r.Verdict = 1, 1, time.Since(began).Seconds(), proof.Held
	code := 0
	if r.Broken > 0 {
		r.Verdict, code = proof.Broken, 1
	}
	return code, b.tell(chosen[0], r)
}
