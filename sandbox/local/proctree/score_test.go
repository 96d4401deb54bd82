//go:build linux

package proctree

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// scoreOf reads a process's adjustment.
func scoreOf(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestCommandsGoFirst: the kernel's killer takes a command before this process,
// and what the command starts at once, too; this process stays what it was.
func TestCommandsGoFirst(t *testing.T) {
	own := scoreOf(t, "/proc/self/oom_score_adj")
	want := min(own+scoreAbove, scoreMost)
	forests(t, func(t *testing.T, f *Forest) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				tree, out := start(t, f, "read n </proc/self/oom_score_adj; echo $n; cat /proc/self/oom_score_adj")
				defer tree.Release()
				for _, got := range printed(t, out, 2) {
					if got != want {
						t.Errorf("it has %d, not %d", got, want)
					}
				}
				<-tree.Exited()
			})
		}
		all.Wait()
		if now := scoreOf(t, "/proc/self/oom_score_adj"); now != own {
			t.Errorf("this process has %d, had %d", now, own)
		}
	})
}

// TestScoreIsNeverLowered: what is near the most stays above this process's own.
func TestScoreIsNeverLowered(t *testing.T) {
	for _, own := range []string{"-1000", "-3", "0", "700", "1000"} {
		f, err := os.Create(t.TempDir() + "/oom_score_adj")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(own + "\n"); err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(own)
		s := &score{file: f}
		s.raise()
		s.raise()
		if s.own != n {
			t.Errorf("%s is read as %d", own, s.own)
		}
		text, err := os.ReadFile(f.Name())
		if err != nil || !strings.HasPrefix(string(text), strconv.Itoa(min(n+scoreAbove, scoreMost))) {
			t.Errorf("%s is %s, %v", own, text, err)
		}
		s.restore()
		if !s.set {
			t.Error("one birth's end is every one's")
		}
		if s.restore(); s.set {
			t.Error("it stays")
		}
	}
}
