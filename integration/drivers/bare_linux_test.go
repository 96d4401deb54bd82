package drivers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
)

// The deeds of this test's own program inside a sandbox that say what the
// sandbox itself costs, without an agent.
const (
	bareForks = "forks"
	bareBytes = "bytes"
	bareName  = "bare.sock"
)

// forks starts this many commands as the agent does and prints the median of how
// long each took, in ms.
func forks(n int) int {
	var took []float64
	for range n {
		began := time.Now()
		if err := exec.Command("/bin/sh", "-c", "true").Run(); err != nil {
			fmt.Println(err)
			return 1
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	slices.Sort(took)
	fmt.Println(took[n/2])
	return 0
}

// bytesLoop serves one Unix connection after another with bare loops: for "d" it
// sends the file, for "u" it takes a new one and says so at its end.
func bytesLoop(file string) int {
	ln, err := net.Listen("unix", filepath.Join(hostroot.Workspace, bareName))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for {
		c, err := ln.Accept()
		if err == nil {
			err = bareTransfer(c, file)
			c.Close()
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
}

func bareTransfer(c net.Conn, file string) error {
	way := make([]byte, 1)
	if _, err := io.ReadFull(c, way); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	if way[0] == 'd' {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{f}, buf)
		return err
	}
	f, err := os.Create("bare-new")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{io.LimitReader(c, streamBytes)}, buf); err != nil {
		return err
	}
	_, err = c.Write([]byte{'.'})
	return err
}

// bareOutside is the other end of bareTransfer.
func bareOutside(state string, way byte) error {
	dir, err := os.Open(filepath.Join(state, "sandboxes", "acme", "default"))
	if err != nil {
		return err
	}
	defer dir.Close()
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), bareName))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte{way}); err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	if way == 'd' {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf)
		if err == nil && n != streamBytes {
			err = fmt.Errorf("%d bytes", n)
		}
		return err
	}
	zeros := io.LimitReader(zero{}, streamBytes)
	if _, err := io.CopyBuffer(struct{ io.Writer }{c}, zeros, buf); err != nil {
		return err
	}
	_, err = io.ReadFull(c, buf[:1])
	return err
}

type zero struct{}

func (zero) Read(p []byte) (int, error) { return len(p), nil }

// BenchmarkGVisor: what the agent adds to gVisor: a command beside a fork and
// exec inside the same sandbox, streams beside a bare loop over a Unix socket of
// the same sandbox.
func BenchmarkGVisor(b *testing.B) {
	p := newPlace(b, kinds["runsc"].flags(b))
	sb := p.client(b, p.serve(b))
	own, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(own)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := sb.WriteFile(b.Context(), "foe", text, sandbox.WriteOptions{Mode: sandbox.Some(uint32(0o755))}); err != nil {
		b.Fatal(err)
	}
	as := func(deed string) sandbox.ExecOptions {
		return sandbox.ExecOptions{Timeout: time.Hour, Env: map[string]string{foeEnv: deed}}
	}
	b.Run("exec", func(b *testing.B) {
		var ours, theirs []float64
		for b.Loop() {
			r, err := sb.Exec(b.Context(), "./foe", as(bareForks))
			if err != nil {
				b.Fatal(err)
			}
			var ms float64
			if _, err := fmt.Sscan(string(r.Stdout), &ms); err != nil {
				b.Fatalf("%s%s", r.Stdout, r.Stderr)
			}
			theirs = append(theirs, ms)
			for range bareForkCount {
				began := time.Now()
				if _, err := sb.Exec(b.Context(), "true", sandbox.ExecOptions{}); err != nil {
					b.Fatal(err)
				}
				ours = append(ours, float64(time.Since(began).Microseconds())/1000)
			}
		}
		slices.Sort(ours)
		slices.Sort(theirs)
		b.ReportMetric(ours[len(ours)/2], "ours-ms")
		b.ReportMetric(theirs[len(theirs)/2], "theirs-ms")
		b.ReportMetric(ours[len(ours)/2]/theirs[len(theirs)/2], "ratio")
		b.ReportMetric(0, "ns/op")
	})
	if _, err := sb.Exec(b.Context(), fmt.Sprintf("head -c %d /dev/zero >file", streamBytes), sandbox.ExecOptions{}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		r, err := sb.Exec(ctx, "./foe", as(bareBytes))
		ended <- errors.Join(err, errors.New(strings.TrimSpace(string(r.Stdout))))
	}()
	for way, move := range map[byte]func(sandbox.API) error{'d': down, 'u': up} {
		b.Run(map[byte]string{'d': "down", 'u': "up"}[way], func(b *testing.B) {
			medians(b, func() error { return move(sb) }, func() error {
				err := bareOutside(filepath.Join(p.dir, "state"), way)
				for errors.Is(err, os.ErrNotExist) && len(ended) == 0 { // it is starting
					err = bareOutside(filepath.Join(p.dir, "state"), way)
				}
				return err
			})
		})
	}
	cancel()
	<-ended
}

// bareForkCount is how many commands a median is taken of.
const bareForkCount = 20
