// Command prove tries the promises of the project, at points that anybody can
// try again: it makes the faults, counts what they led to and writes one JSON
// line a goal. docs/prove.md tells how to read it.
//
//	go run ./integration/prove -quick
//	go run ./integration/prove -goal G1 -n 20000 -seed 7 -o g1.jsonl [-resume]
//	go run ./integration/prove -replay g1.jsonl:1
//	go run ./integration/prove -goal G1 -n 1000 -mutant close_is_success
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// options are the flags.
type options struct {
	goal, out, mutant, replay, broken string
	n, point                          int
	seed                              uint64
	quick, resume                     bool
}

func parse() options {
	var o options
	flag.StringVar(&o.goal, "goal", "", "the goal to try; all where empty")
	flag.IntVar(&o.n, "n", 0, "how many points to try; those of CI where 0")
	flag.Uint64Var(&o.seed, "seed", 1, "what the points follow from")
	flag.StringVar(&o.out, "o", "", "write the lines to this file as well")
	flag.StringVar(&o.mutant, "mutant", "", "break a copy of the project by this fault and try that; its goal must notice")
	flag.StringVar(&o.replay, "replay", "", "FILE:LINE: try the first violation of a line again, or the point of -point")
	flag.IntVar(&o.point, "point", -1, "try this point alone")
	flag.BoolVar(&o.resume, "resume", false, "go on where the file of -o ends")
	flag.BoolVar(&o.quick, "quick", false, "try every goal as CI does, and whether it notices its mutant")
	flag.StringVar(&o.broken, "broken-by", "", "what the tree was broken by (set by -mutant)")
	flag.Parse()
	return o
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, parse())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
		code = 2
	}
	os.Exit(code)
}

// run returns 0 where everything held, 1 where something did not, 2 with an
// error where that is not known, exitShort where little was seen.
func run(ctx context.Context, o options) (int, error) {
	if flag.NArg() > 0 {
		return 2, fmt.Errorf("what is %q? See -help", flag.Arg(0))
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return 2, err
	}
	defer b.close()
	switch {
	case o.mutant != "":
		return b.tryMutant(ctx)
	case o.replay != "":
		return b.replay(ctx)
	case o.point >= 0:
		return b.onePoint(ctx, o.goal, o.seed, o.point)
	}
	return b.all(ctx)
}
