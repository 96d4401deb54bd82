//go:build linux

package thread

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// users are those of the thread that asks: real, effective, saved, files.
func users(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Join(strings.Fields(line), " ")
}

// TestSpend: what is done to the thread is seen there, and nowhere afterwards.
func TestSpend(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root changes its user")
	}
	spent := map[string]bool{} // some may still be on their way out
	for range 100 {
		Spend(func() {
			spent[fmt.Sprint(unix.Gettid())] = true
			Real(1000, 1000)
			if got := users(t); got != "1000 0 0 0" {
				t.Errorf("real: %s", got)
			}
			Effective(1001, 1001)
			if got := users(t); got != "1000 1001 0 1001" {
				t.Errorf("effective: %s", got)
			}
		})
		if spent[fmt.Sprint(os.Getpid())] {
			t.Error("the first thread was spent")
		}
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status"); err == nil && !spent[task.Name()] && !strings.Contains(string(text), "\nUid:\t0\t0\t0\t0\n") {
				t.Errorf("thread %s is another user's", task.Name())
			}
		}
	}
}
