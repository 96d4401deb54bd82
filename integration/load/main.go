// Command load measures controld beside what a user would pick instead, and
// beside what the machine allows. Daemon, client and every reference are
// processes of their own; a ratio is taken inside a round, in which all cases
// take turns. It runs on Linux, and uses no address but those of loopback.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/dustin/go-humanize"

	"github.com/controld/controld/integration/load/peer"
	"github.com/controld/controld/integration/load/worker"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "worker":
		err = worker.Run(os.Stdin, os.Stdout)
	case len(os.Args) == 4 && os.Args[1] == "peer":
		err = servePeer(os.Args[2], os.Args[3])
	default:
		os.Exit(run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// servePeer serves a Go reference, which may show an identity, until the
// standard input ends.
func servePeer(kind, identity string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	failed := make(chan error, 1)
	go func() { failed <- peer.Serve(kind, l, identity) }()
	go func() {
		os.Stdin.Read(make([]byte, 1))
		failed <- nil
	}()
	return <-failed
}

// options are the flags.
type options struct {
	full, quick          bool
	rounds               int
	size                 int64
	out, row, disk, prof string
}

func parse() (options, error) {
	var o options
	var size string
	flag.BoolVar(&o.quick, "quick", false, "small sizes, one round: fails on errors and wrong bytes alone (the default)")
	flag.BoolVar(&o.full, "full", false, "full sizes, five rounds: fails on every row that is missing or not met")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds (default 5, with -quick 1)")
	flag.StringVar(&size, "size", "", "bytes of a bulk transfer (default 4GiB, with -quick 128MiB)")
	flag.StringVar(&o.out, "o", "", "write the tables to this file as well")
	flag.StringVar(&o.row, "row", "", "only the rows whose name contains this")
	flag.StringVar(&o.disk, "disk", "", "directory on the disk to measure (default that of temporary files)")
	flag.StringVar(&o.prof, "profile", "", "write CPU profiles of clients and daemons into this directory")
	flag.Parse()
	if flag.NArg() > 0 || o.full && o.quick {
		return o, errors.New("usage: load [-quick|-full] [-rounds N] [-size 4GiB] [-o table.md] [-row NAME]")
	}
	o.quick = !o.full
	if o.rounds == 0 {
		o.rounds = map[bool]int{true: 1, false: fullRounds}[o.quick]
	}
	if size == "" {
		size = map[bool]string{true: "128MiB", false: "4GiB"}[o.quick]
	}
	n, err := humanize.ParseBytes(size)
	if err != nil || n == 0 {
		return o, fmt.Errorf("-size %q wants bytes such as 4GiB", size)
	}
	o.size = int64(n)
	return o, nil
}

func run() int {
	o, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := newBench(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		return 1
	}
	defer b.close()
	b.describe(ctx)
	var results []result
	for _, g := range b.groups() {
		if g = g.pick(o.row); len(g.rows) > 0 {
			results = append(results, b.runGroup(ctx, g)...)
		}
	}
	text := table(results) + "\n" + b.figures.table()
	fmt.Print("\n" + text)
	if o.out != "" {
		if err := os.WriteFile(o.out, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			return 1
		}
	}
	return b.judge(results)
}

// judge returns the exit code and says what was wrong.
func (b *bench) judge(results []result) int {
	code := 0
	complain := func(format string, args ...any) {
		code = 1
		fmt.Fprintf(os.Stderr, "load: "+format+"\n", args...)
	}
	if len(results) == 0 {
		complain("no row has a name like that")
	}
	if b.full && (b.rounds < fullRounds || b.size < fullSize) {
		complain("-full wants %d rounds of %d bytes", fullRounds, int64(fullSize))
	}
	for _, r := range results {
		missing := errors.Is(r.err, errMissing)
		switch {
		case missing && b.quick:
			fmt.Fprintf(os.Stderr, "load: %s: left out: %v\n", r.name, r.err)
		case r.err != nil:
			complain("%s: %v", r.name, r.err)
		case !r.met() && (b.full || r.bytes):
			complain("%s: %s, must be %s", r.name, number(median(r.values)), number(r.must))
		}
	}
	return code
}
