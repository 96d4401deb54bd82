package drivers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// The figures: what a driver's sandboxes cost beside what its engine's own tools
// do. Each iteration does both, one after the other, and the ratio is that of
// their medians.
//
//	go test -run '^$' -bench . -benchtime 10x ./integration/drivers

// medians runs ours and theirs in turns and reports both, and the ratio. What
// comes before each turn does not count.
func medians(b *testing.B, ours, theirs func() error, before ...func()) {
	b.Helper()
	took := make([][]float64, 2)
	for b.Loop() {
		for _, do := range before {
			do()
		}
		for i, do := range []func() error{ours, theirs} {
			began := time.Now()
			if err := do(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], float64(time.Since(began).Microseconds())/1000)
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	own, other := took[0][len(took[0])/2], took[1][len(took[1])/2]
	b.ReportMetric(own, "ours-ms")
	b.ReportMetric(other, "theirs-ms")
	b.ReportMetric(own/other, "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStart: from nothing to the first command answered, beside a bare run
// of the runtime, or the engine's run and exec.
func BenchmarkStart(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		b.Run(name, func(b *testing.B) {
			h := newHost(b, k.driver(b))
			bare := newTool(b, name)
			n := 0
			ours := func() error {
				n++
				sb, err := h.Backend(b.Context(), "acme", fmt.Sprintf("s%d", n))
				if err == nil {
					_, err = sb.Exec(b.Context(), "true", sandbox.ExecOptions{})
				}
				return err
			}
			medians(b, ours, bare.run)
		})
	}
}

// BenchmarkExec: one command in a sandbox that runs, beside the engine's exec in
// its own container.
func BenchmarkExec(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		b.Run(name, func(b *testing.B) {
			sb, err := newHost(b, k.driver(b)).Backend(b.Context(), "acme", "default")
			if err != nil {
				b.Fatal(err)
			}
			bare := newTool(b, name)
			ours := func() error {
				_, err := sb.Exec(b.Context(), "true", sandbox.ExecOptions{})
				return err
			}
			medians(b, ours, bare.exec)
		})
	}
}

// streamBytes is what BenchmarkStreams moves each way.
const streamBytes = 1 << 30

// BenchmarkStreams: a file out of a sandbox and into it, beside the same through
// the host driver.
func BenchmarkStreams(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		b.Run(name, func(b *testing.B) {
			place := newPlace(b, k.flags(b))
			other := newPlace(b, []string{"--driver", "host"})
			ours, theirs := place.client(b, place.serve(b)), other.client(b, other.serve(b))
			for way, move := range map[string]func(sandbox.API) error{"down": down, "up": up} {
				b.Run(way, func(b *testing.B) {
					for _, sb := range []sandbox.API{ours, theirs} {
						if _, err := sb.Exec(b.Context(), fmt.Sprintf("head -c %d /dev/zero >file", streamBytes), sandbox.ExecOptions{}); err != nil {
							b.Fatal(err)
						}
					}
					medians(b, func() error { return move(ours) }, func() error { return move(theirs) })
				})
			}
		})
	}
}

func down(sb sandbox.API) error {
	s, err := sb.ReadFileStream(context.Background(), "file", sandbox.ReadOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	n, err := io.Copy(io.Discard, s)
	if err == nil && n != streamBytes {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

func up(sb sandbox.API) error {
	f, err := os.CreateTemp("", "figures-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := f.Truncate(streamBytes); err != nil {
		return err
	}
	_, err = sb.WriteFileStream(context.Background(), "new", f, sandbox.WriteOptions{Size: sandbox.Some(int64(streamBytes))})
	return err
}
