package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/controld/controld/integration/prove/proof"
)

// origin is what is being tried.
type origin struct {
	commit string
	dirty  bool
}

// originOf asks git; a tree that it does not know has no commit.
func originOf(ctx context.Context, tree string) origin {
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = tree
		out, err := cmd.Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	o := origin{commit: git("rev-parse", "HEAD")}
	if o.commit == "" {
		return origin{"unknown", true}
	}
	o.dirty = git("status", "--porcelain") != ""
	return o
}

func machine() proof.Machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return proof.Machine{CPUs: runtime.NumCPU(), Kernel: string(bytes.TrimSpace(kernel)), Go: runtime.Version(), User: os.Getuid()}
}
