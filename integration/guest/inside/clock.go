//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
)

// clock steps the clock back and forth below everything that takes time: a
// transfer that waits for its connection, one that runs, and a command with a
// time limit. None may notice.
func clock(ctx context.Context, _ []string) error {
	sb, end, err := serve(ctx, nil)
	if err != nil {
		return err
	}
	defer end()
	if _, err := sb.WriteFile(ctx, "f", []byte("content"), sandbox.WriteOptions{}); err != nil {
		return err
	}
	for _, step := range []time.Duration{time.Hour, -time.Hour, -time.Hour, time.Hour} {
		if err := underStep(ctx, sb, step); err != nil {
			return fmt.Errorf("step of %v: %w", step, err)
		}
		say("step", step)
	}
	return nil
}

func underStep(ctx context.Context, sb sandbox.Backend, step time.Duration) error {
	src, err := sb.OpenRead(ctx, "f", sandbox.ReadOptions{}) // its token waits
	if err != nil {
		return err
	}
	defer src.Close()
	sink, err := sb.OpenWrite(ctx, "g", sandbox.WriteOptions{})
	if err != nil {
		return err
	}
	defer sink.Abort(nil)
	began := make(chan struct{})
	limited := make(chan error, 1)
	go func() {
		close(began)
		limited <- timesOut(ctx, sb)
	}()
	<-began
	if err := stepClock(step); err != nil {
		return err
	}
	if err := <-limited; err != nil {
		return err
	}
	b := make([]byte, 7)
	if n, err := src.Reader().Read(b); err != nil || string(b[:n]) != "content" {
		return fmt.Errorf("a waiting read gave %q, %w", b[:n], err)
	}
	if _, err := sink.Writer().Write([]byte("written")); err != nil {
		return err
	}
	if _, err := sink.Commit(ctx, sandbox.Commit{Bytes: 7}); err != nil {
		return err
	}
	return nil
}

// timesOut runs a command over its limit of a second.
func timesOut(ctx context.Context, sb sandbox.Backend) error {
	began := time.Now() // with a monotonic reading
	r, err := sb.Exec(ctx, "echo begun; sleep 1000", sandbox.ExecOptions{Timeout: time.Second})
	took := time.Since(began)
	switch {
	case err != nil:
		return err
	case r.Reason != sandbox.ReasonTimedOut || strings.TrimSpace(string(r.Stdout)) != "begun":
		return fmt.Errorf("a command over its limit: %+v", r)
	case took < time.Second || took > time.Minute:
		return fmt.Errorf("a limit of a second took %v", took)
	}
	return nil
}

func stepClock(step time.Duration) error {
	tv := unix.NsecToTimeval(time.Now().Add(step).UnixNano())
	return unix.Settimeofday(&tv)
}
