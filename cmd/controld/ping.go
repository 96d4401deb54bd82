package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/controld/controld/adapter"
)

// tick calls f ten times a second until ctx ends.
func tick(ctx context.Context, f func()) {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// latency is what a number of equal calls took.
type latency struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
}

// measure times n calls, one after the other.
func measure(n int, call func() error) (latency, error) {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := call(); err != nil {
			return latency{}, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return latency{Count: n, P50: took[n/2], P99: took[n*99/100]}, nil
}

func (a *app) pingCommand() *cobra.Command {
	var count int
	cmd := a.clientCommand(&cobra.Command{
		Use: "ping", Short: "Measure the control round trip", Args: args(cobra.NoArgs),
	}, func(cmd *cobra.Command, sb *adapter.Sandbox, _ []string) error {
		if count < 1 {
			return usagef("ping: --count must be above 0")
		}
		server, err := sb.Server(cmd.Context())
		if err != nil {
			return err
		}
		l, err := measure(count, func() error { return sb.Ping(cmd.Context()) })
		if err != nil {
			return err
		}
		if a.client.json {
			return json.NewEncoder(a.stdout).Encode(map[string]any{"server": server, "round_trip": l})
		}
		_, err = fmt.Fprintf(a.stdout, "%s answers: p50 %v, p99 %v of %d round trips\n", server, l.P50, l.P99, l.Count)
		return err
	})
	cmd.Flags().IntVarP(&count, "count", "c", 100, "round trips")
	return cmd
}
