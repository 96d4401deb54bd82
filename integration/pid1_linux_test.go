package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/sandbox"
)

// firstProcess starts an agent as process 1 of a process namespace of its own.
func firstProcess(t *testing.T) *ground.First {
	t.Helper()
	first, err := ground.StartFirst(t.Context(), binary(t), t.TempDir())
	if errors.Is(err, ground.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Stop)
	return first
}

// TestCase_C18: an agent that is process 1 reaps what is orphaned to it, and
// loses no status to that.
func TestCase_C18(t *testing.T) {
	first := firstProcess(t)
	sb, err := adapter.New(adapter.Options{Control: first.URL, Token: first.Secret})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var lanes, watch sync.WaitGroup
	most, looks := 0, 0
	watch.Go(func() {
		for ctx.Err() == nil {
			most, looks = max(most, check.Zombies(first.PID, "sleep")), looks+1
		}
	})
	const each = 125
	for lane := range 4 {
		lanes.Go(func() {
			for i := range each {
				code := (lane*each + i) % 100
				// The inner shell orphans a child that ends by itself.
				res, err := sb.Exec(t.Context(), fmt.Sprintf("(sh -c 'sleep 0.02 & exit') ; exit %d", code), sandbox.ExecOptions{})
				if err != nil || res.ExitCode != code {
					t.Errorf("exit %d: %+v, %v", code, res, err)
					return
				}
			}
		})
	}
	began := time.Now()
	lanes.Wait()
	await(t, "the last orphans to be reaped", func() bool { return check.Zombies(first.PID, "sleep") == 0 })
	cancel()
	watch.Wait()
	t.Logf("%d commands in %v, at most %d zombies in %d looks", 4*each, time.Since(began), most, looks)
	if most > 16 {
		t.Errorf("%d zombies", most)
	}
}
