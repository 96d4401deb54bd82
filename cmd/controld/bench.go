package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// benchReport is what bench prints.
type benchReport struct {
	Server  string  `json:"server"`
	Size    int64   `json:"size_bytes"`
	Streams int     `json:"streams"`
	Stat    latency `json:"stat"`
	Exec    latency `json:"exec"`
	Up      rate    `json:"up"`
	Down    rate    `json:"down"`
	Client  usage   `json:"client"`
	// Daemon is absent where it cannot be seen from the sandbox.
	Daemon *usage `json:"daemon,omitempty"`
	// References are those that are installed here.
	References []reference `json:"references"`
}

// rate is bytes moved in one direction.
type rate struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func (r rate) perSecond() float64 { return float64(r.Bytes) / r.Seconds }

// String returns the rate a second.
func (r rate) String() string { return humanize.IBytes(uint64(r.perSecond())) + "/s" }

func (a *app) benchCommand() *cobra.Command {
	var size string
	var streams int
	cmd := a.clientCommand(&cobra.Command{
		Use: "bench", Short: "Measure calls, rates, CPU and memory against this daemon, beside what is installed here", Args: args(cobra.NoArgs),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, _ []string) error {
		bytes, err := humanize.ParseBytes(size)
		if err != nil || bytes == 0 || streams < 1 {
			return usagef("bench: --size wants bytes such as 4GiB and --streams a number above 0")
		}
		r, err := runBench(cmd.Context(), sb, int64(bytes), streams)
		if err != nil {
			return err
		}
		if a.client.json {
			return json.NewEncoder(a.stdout).Encode(r)
		}
		return a.printBench(r)
	})
	cmd.Flags().StringVar(&size, "size", "4GiB", "bytes a stream")
	cmd.Flags().IntVar(&streams, "streams", 1, "streams at once")
	return cmd
}

func runBench(ctx context.Context, sb *adapter.Sandbox, size int64, streams int) (benchReport, error) {
	r := benchReport{Size: size, Streams: streams}
	var err error
	if r.Server, err = sb.Server(ctx); err != nil {
		return r, err
	}
	dir := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	if err := sb.Mkdir(ctx, dir, sandbox.MkdirOptions{}); err != nil {
		return r, err
	}
	defer sb.Rm(context.WithoutCancel(ctx), dir, sandbox.RmOptions{Recursive: true, Force: true})
	if r.Stat, err = measure(2000, func() error {
		_, err := sb.Stat(ctx, dir, sandbox.StatOptions{})
		return err
	}); err != nil {
		return r, err
	}
	if r.Exec, err = measure(100, func() error {
		_, err := sb.Exec(ctx, "true", sandbox.ExecOptions{})
		return err
	}); err != nil {
		return r, err
	}
	if err := benchStreams(ctx, sb, dir, &r); err != nil {
		return r, err
	}
	r.Client = usageOf("self")
	r.Daemon = daemonUsage(ctx, sb)
	r.References = references(ctx, r)
	return r, nil
}

// benchStreams sends sparse files up and down: what is measured is the way,
// not the disk they come from.
func benchStreams(ctx context.Context, sb *adapter.Sandbox, dir string, r *benchReport) error {
	tmp, err := os.MkdirTemp("", "controld-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	src := filepath.Join(tmp, "src")
	if err := sparseFile(src, r.Size); err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprintf("%s/f%d", dir, i) }
	r.Up, err = timed(r, func(i int) error {
		f, err := os.Open(src)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = sb.WriteFileStream(ctx, name(i), f, sandbox.WriteOptions{Size: sandbox.Some(r.Size)})
		return err
	})
	if err != nil {
		return err
	}
	r.Down, err = timed(r, func(i int) error {
		s, err := sb.ReadFileStream(ctx, name(i), sandbox.ReadOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		out, err := os.Create(filepath.Join(tmp, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		defer os.Remove(out.Name())
		defer out.Close()
		_, err = io.Copy(out, s)
		return err
	})
	return err
}

// timed runs one stream a number at once.
func timed(r *benchReport, stream func(i int) error) (rate, error) {
	errs := make(chan error, r.Streams)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range r.Streams {
		wg.Go(func() { errs <- stream(i) })
	}
	wg.Wait()
	took := time.Since(start)
	for range r.Streams {
		if err := <-errs; err != nil {
			return rate{}, err
		}
	}
	return rate{Bytes: r.Size * int64(r.Streams), Seconds: took.Seconds()}, nil
}

func (a *app) printBench(r benchReport) error {
	w := a.stdout
	fmt.Fprintf(w, "server   %s\n", r.Server)
	fmt.Fprintf(w, "stat     p50 %v  p99 %v\n", r.Stat.P50, r.Stat.P99)
	fmt.Fprintf(w, "exec     p50 %v  p99 %v\n", r.Exec.P50, r.Exec.P99)
	fmt.Fprintf(w, "up       %v (%d x %s)\n", r.Up, r.Streams, humanize.IBytes(uint64(r.Size)))
	fmt.Fprintf(w, "down     %v\n", r.Down)
	fmt.Fprintf(w, "client   %v\n", r.Client)
	if r.Daemon != nil {
		fmt.Fprintf(w, "daemon   %v\n", *r.Daemon)
	}
	fmt.Fprintln(w, "\nand on this machine (above 1: controld is faster)")
	for _, ref := range r.References {
		fmt.Fprintln(w, ref)
	}
	return nil
}
