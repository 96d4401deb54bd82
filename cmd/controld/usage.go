package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// usage is what a process has used so far, see proc(5).
type usage struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakRSS    int64   `json:"peak_rss_bytes"`
}

// String returns the usage in words.
func (u usage) String() string {
	return fmt.Sprintf("%.2f s CPU, %s at most", u.CPUSeconds, humanize.IBytes(uint64(u.PeakRSS)))
}

// ticksPerSecond is USER_HZ, 100 on every Linux.
const ticksPerSecond = 100

// parseUsage reads /proc/PID/stat and /proc/PID/status.
func parseUsage(stat, status string) usage {
	var u usage
	if _, rest, ok := strings.Cut(stat, ") "); ok {
		if f := strings.Fields(rest); len(f) > 12 {
			user, _ := strconv.ParseFloat(f[11], 64)
			system, _ := strconv.ParseFloat(f[12], 64)
			u.CPUSeconds = (user + system) / ticksPerSecond
		}
	}
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			u.PeakRSS = kib << 10
		}
	}
	return u
}

func usageOf(pid string) usage {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	return parseUsage(string(stat), string(status))
}

// daemonUsage asks the sandbox about the process above its command: on the
// host driver that is the daemon. Nil where it cannot be seen.
func daemonUsage(ctx context.Context, sb *adapter.Sandbox) *usage {
	res, err := sb.Exec(ctx, "cat /proc/$PPID/stat && cat /proc/$PPID/status", sandbox.ExecOptions{})
	if err != nil || res.ExitCode != 0 {
		return nil
	}
	stat, status, _ := strings.Cut(string(res.Stdout), "\n")
	u := parseUsage(stat, status)
	return &u
}
