//go:build linux

package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// TestLongOutputs: what does not fit into a little memory is in a mapping, and
// kept by the same rules.
func TestLongOutputs(t *testing.T) {
	for _, size := range []int{longOutput, longOutput + 1, 3 * longOutput, 4*longOutput + 5, 9 * longOutput} {
		for _, step := range []int{1000, longOutput, 5 * longOutput} {
			const limit = 4 * longOutput
			all := make([]byte, size)
			for i := range all {
				all[i] = byte(i % 251)
			}
			b := headTail{limit: limit}
			for rest := all; len(rest) > 0; {
				n := min(step, len(rest))
				b.add(rest[:n])
				rest = rest[n:]
			}
			if mapped := b.mapped != nil; mapped != (size > longOutput) {
				t.Errorf("%d bytes: mapped %v", size, mapped)
			}
			want := all
			if size > limit {
				want = slices.Concat(all[:limit/2], all[size-limit/2:])
			}
			if got, omitted := b.take(); !bytes.Equal(got, want) || omitted != int64(size-len(want)) {
				t.Errorf("%d bytes by %d: %d kept, %d omitted", size, step, len(got), omitted)
			}
		}
	}
}

// TestCancelledOutputsAreDropped: nobody will see them.
func TestCancelledOutputsAreDropped(t *testing.T) {
	s := open(t, Options{})
	const rounds = 60
	before := 0
	for round := range rounds + 5 {
		if round == 5 {
			before = mapped(t) // the runtime has what it needs
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		if _, err := s.Exec(ctx, "yes", sandbox.ExecOptions{}); sandbox.KindOf(err) != sandbox.KindCancelled {
			t.Fatal(err)
		}
	}
	if grown := mapped(t) - before; grown > rounds*8<<20/2 {
		t.Errorf("%d bytes more are mapped", grown)
	}
}

// mapped is the address space of this process, in bytes, see statm in proc(5).
func mapped(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &n); err != nil {
		t.Fatal(err)
	}
	return n * os.Getpagesize()
}
