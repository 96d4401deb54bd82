package daemon

import (
	"slices"
	"testing"
	"time"
)

// TestSteps: a step that hangs is left behind and told of, once; the others are
// taken all the same.
func TestSteps(t *testing.T) {
	var told []string
	l := &leaving{tell: func(step string) { told = append(told, step) }}
	taken := 0
	l.step("one", 0, func() { taken++ })
	if l.hung {
		t.Error("hung behind a step that ended")
	}
	hang := make(chan struct{})
	defer close(hang)
	l.step("two", time.Millisecond, func() { <-hang })
	l.step("three", 0, func() { taken++ })
	if !l.hung || taken != 2 || !slices.Equal(told, []string{"two"}) {
		t.Errorf("hung %v, %d taken, told of %v", l.hung, taken, told)
	}
}
