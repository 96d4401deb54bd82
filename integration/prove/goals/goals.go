// Package goals is the table of what is promised and how it is tried.
//
// What does not belong here: counting, files and flags (package proof and the
// command), and faults of the wire (package faultproxy).
package goals

import (
	"context"

	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
)

// All returns the goals, to be tried on the ground.
func All(g *ground.Ground) []proof.Goal {
	return []proof.Goal{
		falseSuccesses(g), kills(g), matrix(g), disks(g), races(g), tokens(g), survivors(g), timeouts(g), orphans(g), loris(g), pushers(g), neighbours(g),
		flips(g), histories(g), endsInTheMiddle(g), canaries(g),
	}
}

// opens makes the Open of a goal from a constructor.
func opens[P proof.Prover](g *ground.Ground, open func(context.Context, *ground.Ground) (P, error)) func(context.Context) (proof.Prover, error) {
	return func(ctx context.Context) (proof.Prover, error) { return open(ctx, g) }
}
