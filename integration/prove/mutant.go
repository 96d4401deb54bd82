package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/controld/controld/integration/mutants/faults"
	"github.com/controld/controld/integration/prove/proof"
)

// controlPoints is how many points of a broken project CI tries.
const controlPoints = 250

// tryMutant tries a goal on a broken copy of the project: 0 is a mutant that
// was noticed.
func (b *bench) tryMutant(ctx context.Context) (int, error) {
	if b.goal == "" {
		return 2, errors.New("-mutant wants -goal")
	}
	r, err := b.onCopy(ctx, b.mutant, b.goal, b.n)
	if err != nil {
		return 2, err
	}
	if err := b.file.Put(r); err != nil {
		return 2, err
	}
	if r.Broken == 0 {
		fmt.Fprintf(os.Stderr, "%s does not notice %s\n", b.goal, b.mutant)
		return 1, nil
	}
	fmt.Fprintf(os.Stderr, "%s notices %s: %d violations of %d tries\n", b.goal, b.mutant, r.Broken, r.Tries)
	return 0, nil
}

// control tries a part of a goal on its mutant and adds to the record what it
// found there.
func (b *bench) control(ctx context.Context, g proof.Goal, r *proof.Record) error {
	broken, err := b.onCopy(ctx, g.Mutant, g.ID, controlPoints)
	if err != nil {
		return err
	}
	r.Fails("mutant "+g.Mutant, broken.Broken)
	r.Add("tries of mutant "+g.Mutant, broken.Tries)
	if broken.Broken*1000 < g.Floor*broken.Tries {
		r.Missing = append(r.Missing, fmt.Sprintf("mutant %s: %d violations of %d tries, must be %d of a thousand", g.Mutant, broken.Broken, broken.Tries, g.Floor))
		if r.Verdict == proof.Held {
			r.Verdict = proof.Short
		}
	}
	return nil
}

// onCopy builds the prover of a broken copy, runs it and returns its record.
func (b *bench) onCopy(ctx context.Context, name, goal string, n int) (proof.Record, error) {
	fault, err := faults.Named(name)
	if err != nil {
		return proof.Record{}, err
	}
	dir, err := os.MkdirTemp("", "controld-prove-")
	if err != nil {
		return proof.Record{}, err
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "tree")
	if err := faults.Copy(ctx, b.tree, tree); err != nil {
		return proof.Record{}, err
	}
	if _, err := fault.Break(tree); err != nil {
		return proof.Record{}, err
	}
	out := filepath.Join(dir, "out")
	args := []string{"run"}
	if raceDetector {
		args = append(args, "-race")
	}
	args = append(args, "./integration/prove", "-goal", goal, "-n", strconv.Itoa(n), "-seed", strconv.FormatUint(b.seed, 10), "-o", out, "-broken-by", name)
	if b.point >= 0 {
		args = append(args, "-point", strconv.Itoa(b.point))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Cancel = tree, func() error { return cmd.Process.Signal(os.Interrupt) }
	text, err := cmd.CombinedOutput() // a code of 1 tells that it was noticed
	file, ferr := proof.OpenFile(out)
	if ferr != nil {
		return proof.Record{}, fmt.Errorf("the prover of mutant %s: %w: %s", name, errors.Join(err, ferr), text)
	}
	return file.Line(1)
}
