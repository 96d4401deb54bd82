package adapter_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/work"
)

// BenchmarkKeys compares calls with and without keys, in turns, by their
// medians.
func BenchmarkKeys(b *testing.B) {
	dir := b.TempDir()
	sb, err := local.New(local.Options{DefaultCwd: filepath.Join(dir, "cwd"), StateDir: filepath.Join(dir, "state")})
	if err != nil {
		b.Fatal(err)
	}
	defer sb.Close()
	keys, err := work.NewKeys(work.KeysConfig{Dir: filepath.Join(dir, "keys")})
	if err != nil {
		b.Fatal(err)
	}
	defer keys.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	url := "tcp://" + ln.Addr().String()
	srv := server.New(server.Config{Host: host{sb}, Keys: keys, DataURLs: func(net.Addr) []string { return []string{url} }})
	var serving sync.WaitGroup
	serving.Go(func() { srv.Serve(context.Background(), ln, server.Control|server.Data) })
	defer serving.Wait()
	defer srv.Close()
	var by [2]*adapter.Sandbox
	for i, none := range []bool{false, true} {
		if by[i], err = adapter.New(adapter.Options{Control: url, Token: "good", NoKeys: none, Dial: dataport.Dialer{}.Dial}); err != nil {
			b.Fatal(err)
		}
		defer by[i].Close()
	}
	for _, bench := range []struct {
		name string
		call func(a *adapter.Sandbox) error
	}{
		{"exec", func(a *adapter.Sandbox) error {
			_, err := a.Exec(b.Context(), "true", sandbox.ExecOptions{})
			return err
		}},
		{"write/100", writeCall(b, 100)},
		{"write/64KiB", writeCall(b, 64<<10)},
		{"mkdir", func(a *adapter.Sandbox) error {
			return a.Mkdir(b.Context(), ".", sandbox.MkdirOptions{Recursive: true})
		}},
		{"mint", func(a *adapter.Sandbox) error {
			k, err := a.OpenWrite(b.Context(), "f", sandbox.WriteOptions{})
			if err == nil {
				k.Abort(nil)
			}
			return err
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var times [2][]time.Duration
			for n := range b.N {
				for i := range by {
					which := (n + i) % 2
					begun := time.Now()
					if err := bench.call(by[which]); err != nil {
						b.Fatal(err)
					}
					times[which] = append(times[which], time.Since(begun))
				}
			}
			var p50 [2]float64
			for i, all := range times {
				slices.Sort(all)
				p50[i] = float64(all[len(all)/2]) / 1000
			}
			b.ReportMetric(p50[0], "keyed-p50-µs")
			b.ReportMetric(p50[1], "plain-p50-µs")
			b.ReportMetric(100*(p50[0]/p50[1]-1), "%more")
		})
	}
}

func writeCall(b *testing.B, n int) func(a *adapter.Sandbox) error {
	content := []byte(fmt.Sprintf("%*d", n, n))
	return func(a *adapter.Sandbox) error {
		_, err := a.WriteFile(b.Context(), "f", content, sandbox.WriteOptions{})
		return err
	}
}
