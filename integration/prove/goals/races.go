package goals

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
)

// races is G5: calls on a path of which a directory and a link that leads out
// of the scope change places all the time. A point is one operation, tried for
// a second.
func races(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G5", Promise: "no call leaves its scope, whatever happens to the names on its way",
		Quick: 6 * len(raced), Lanes: 1,
		Open:  opens(g, openRaces),
		Judge: judgeRaces,
	}
}

func judgeRaces(t *proof.Tally) []string {
	var missing []string
	for _, op := range raced {
		tries := t.States[op.name+" tries"]
		if tries == 0 {
			continue // of a run of fewer points
		}
		for _, state := range []string{" inside", " refused"} {
			if n := t.States[op.name+state]; n*10 < tries {
				missing = append(missing, fmt.Sprintf("%s%s: %d of %d tries, must be a tenth", op.name, state, n, tries))
			}
		}
		if n := t.Control[op.name]; n <= 100 {
			missing = append(missing, fmt.Sprintf("control: the naive %s escaped %d times, must be more than 100", op.name, n))
		}
	}
	return missing
}

// arenas makes a new arena for each point.
type arenas struct{ ground *ground.Ground }

func openRaces(_ context.Context, g *ground.Ground) (*arenas, error) { return &arenas{g}, nil }

// Close implements [proof.Prover].
func (a *arenas) Close(*proof.Tally) error { return nil }

// A point takes raceTime, on a machine that has more to do up to raceLonger:
// until the naive way was led out as often as a point has to show.
const (
	raceTime   = time.Second
	raceLonger = 15 * time.Second
	leastLed   = 20
)

// block is how many tries are made before the swapper goes on in another way.
const block = 64

// Try implements [proof.Prover].
func (a *arenas) Try(ctx context.Context, p *proof.Point) error {
	op := raced[p.N%len(raced)]
	ar, err := newArena(a.ground)
	if err != nil {
		return err
	}
	defer ar.close()
	sw := ar.swap()
	p.Tries = 0
	for began := time.Now(); ctx.Err() == nil; {
		if took := time.Since(began); took > raceLonger || took > raceTime && p.Control[op.name] >= leastLed {
			break
		}
		ar.block(ctx, p, op, func(int) {})
		sw.slow()
		ar.block(ctx, p, op, sw.calm)
		ar.block(ctx, p, op, sw.calm)
		sw.fast()
		for range block {
			if ar.escaped(op.naive(ar)) {
				p.Fails(op.name, 1)
			}
		}
	}
	return sw.stop()
}

// block tries an operation some times.
func (ar *arena) block(ctx context.Context, p *proof.Point, op operation, before func(n int)) {
	for n := range block {
		before(n)
		p.Tries++
		p.State(op.name + " tries")
		kind, err := op.try(ctx, ar)
		p.State(op.name + " " + kind)
		if ar.escaped(kind) {
			p.Violate("%s left its scope: %s, %v", op.name, kind, err)
		}
	}
}

// arena is a scope in which the directory a and the link b, which leads out of
// it, change places.
type arena struct {
	scope, out string
	inside     dir // the directory, whatever its name is
	outside    dir
	backend    *local.Sandbox
}

func newArena(g *ground.Ground) (*arena, error) {
	cwd, err := g.Dir()
	if err != nil {
		return nil, err
	}
	ar := &arena{scope: filepath.Join(cwd, "s"), out: filepath.Join(cwd, "out")}
	if err := ar.furnish(); err != nil {
		return nil, err
	}
	ar.backend, err = local.New(local.Options{DefaultCwd: cwd, StateDir: filepath.Join(cwd, "state"), Cgroups: local.CgroupsOff})
	return ar, err
}

func (ar *arena) close() {
	ar.backend.Close()
	ar.inside.Close()
	ar.outside.Close()
}

// What came of a call: it was led to the directory, it was refused, it was led
// out, or something else.
const (
	inside  = "inside"
	refused = "refused"
	led     = "led out"
)

// escaped tells whether a call was led out, by what it said or by what it has
// left outside, which is put right again.
func (ar *arena) escaped(kind string) bool { return ar.restore() || kind == led }

// came puts an error and whether what was seen is the outside's into words.
func came(err error, outside bool) string {
	switch {
	case err != nil && sandbox.KindOf(err) == sandbox.KindPermission:
		return refused
	case err != nil:
		return string(sandbox.KindOf(err))
	case outside:
		return led
	}
	return inside
}
