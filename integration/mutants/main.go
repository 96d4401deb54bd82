// Command mutants shows that the tests can fail: it breaks a copy of the
// project in one place at a time, on purpose, and runs the one test that must
// notice. It exits 1 when a mutant survives.
//
//	go run ./integration/mutants [NAME...]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/controld/controld/integration/mutants/faults"
)

func main() {
	flag.Parse()
	survivors, err := run(context.Background(), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		fmt.Printf("%d mutants survived\n", survivors)
		os.Exit(1)
	}
}

// choose returns the mutants of those names, all of them without any.
func choose(names []string) ([]faults.Fault, error) {
	if len(names) == 0 {
		return faults.All(), nil
	}
	var chosen []faults.Fault
	for _, name := range names {
		f, err := faults.Named(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, f)
	}
	return chosen, nil
}

func run(ctx context.Context, names []string) (survivors int, err error) {
	chosen, err := choose(names)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "controld-mutants-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	b := bench{tree: filepath.Join(dir, "tree"), whole: make(map[faults.Test]bool)}
	if err := faults.Copy(ctx, ".", b.tree); err != nil {
		return 0, err
	}
	for _, m := range chosen {
		began := time.Now()
		v, err := b.try(ctx, m)
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.Name, err)
		}
		if !v.noticed {
			survivors++
		}
		fmt.Printf("%-28s %s (%.0f s)\n", m.Name, v, time.Since(began).Seconds())
	}
	return survivors, nil
}
