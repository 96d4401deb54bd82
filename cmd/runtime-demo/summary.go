package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/controld/controld/sandbox"
)

// summarise prints what differs from run to run: rates, memory, time.
func summarise(ctx context.Context, w io.Writer, env *sandbox.SessionEnv, t *toolbox, took time.Duration) error {
	fmt.Fprintf(w, "\nsummary\n")
	fmt.Fprintf(w, "  streamed in   %s\n", t.up.text())
	fmt.Fprintf(w, "  streamed out  %s\n", t.down.text())
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		fmt.Fprintf(w, "  peak memory   runtime %s\n", peak(string(status)))
	}
	res, err := env.Exec(ctx, "cat /proc/$PPID/status", sandbox.ExecOptions{})
	if err == nil && res.ExitCode == 0 {
		fmt.Fprintf(w, "  peak memory   process above the commands %s\n", peak(string(res.Stdout)))
	}
	_, err = fmt.Fprintf(w, "  time          %.1f s\n", took.Seconds())
	return err
}

func (t *traffic) text() string {
	n, took := t.bytes.Load(), time.Duration(t.nanos.Load())
	if took <= 0 {
		return "nothing"
	}
	return fmt.Sprintf("%s (%d bytes) in %.1f s, %s/s", humanize.IBytes(uint64(n)), n, took.Seconds(),
		humanize.IBytes(uint64(float64(n)/took.Seconds())))
}

// peak finds VmHWM in a status of proc(5).
func peak(status string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err == nil {
				return humanize.IBytes(kib << 10)
			}
		}
	}
	return "unknown"
}
