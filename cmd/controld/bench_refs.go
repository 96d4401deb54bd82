package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// reference is what one would use instead, measured on the machine that bench
// runs on. A ratio above 1 says that controld is faster.
type reference struct {
	Name string `json:"name"`
	// P50 is a call's, Rate a transfer's: a reference has one of them.
	P50  time.Duration `json:"p50_ns,omitempty"`
	Rate *rate         `json:"rate,omitempty"`
	// Ratios are by what they compare: exec, up, down.
	Ratios map[string]float64 `json:"ratios"`
}

// String returns a line for people.
func (r reference) String() string {
	if r.Rate == nil {
		return fmt.Sprintf("%-8s p50 %v: exec %.2f", r.Name, r.P50, r.Ratios["exec"])
	}
	return fmt.Sprintf("%-8s %v: up %.2f, down %.2f", r.Name, *r.Rate, r.Ratios["up"], r.Ratios["down"])
}

// references measures those that are installed; one that fails is left out,
// since it says nothing of controld.
func references(ctx context.Context, r benchReport) []reference {
	refs := []reference{}
	if l, err := measure(100, func() error { return exec.CommandContext(ctx, "/bin/sh", "-c", "true").Run() }); err == nil {
		refs = append(refs, reference{Name: "os/exec", P50: l.P50, Ratios: map[string]float64{"exec": l.P50.Seconds() / r.Exec.P50.Seconds()}})
	}
	for _, ref := range []struct {
		name string
		run  func(context.Context, int64) (rate, error)
	}{{"cp", copyLocally}, {"iperf3", iperf}} {
		moved, err := ref.run(ctx, r.Size)
		if err != nil || moved.Seconds <= 0 || moved.Bytes <= 0 {
			continue
		}
		refs = append(refs, reference{Name: ref.name, Rate: &moved, Ratios: map[string]float64{
			"up": r.Up.perSecond() / moved.perSecond(), "down": r.Down.perSecond() / moved.perSecond()}})
	}
	return refs
}

// copyLocally times cp(1) on a file of size bytes. Holes are copied as zeros,
// as they are sent.
func copyLocally(ctx context.Context, size int64) (rate, error) {
	cp, err := exec.LookPath("cp")
	if err != nil {
		return rate{}, err
	}
	tmp, err := os.MkdirTemp("", "controld-bench-")
	if err != nil {
		return rate{}, err
	}
	defer os.RemoveAll(tmp)
	src := filepath.Join(tmp, "src")
	if err := sparseFile(src, size); err != nil {
		return rate{}, err
	}
	argv := []string{src, filepath.Join(tmp, "dst")}
	if runtime.GOOS == "linux" {
		argv = append([]string{"--sparse=never", "--reflink=never"}, argv...)
	}
	start := time.Now()
	err = exec.CommandContext(ctx, cp, argv...).Run()
	return rate{Bytes: size, Seconds: time.Since(start).Seconds()}, err
}

func sparseFile(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

// iperf times one stream of iperf3 over loopback.
func iperf(ctx context.Context, size int64) (rate, error) {
	path, err := exec.LookPath("iperf3")
	if err != nil {
		return rate{}, err
	}
	port, err := freePort()
	if err != nil {
		return rate{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(size>>20)*50*time.Millisecond)
	defer cancel()
	server := exec.CommandContext(ctx, path, "-s", "-1", "-B", "127.0.0.1", "-p", port, "--forceflush")
	said, err := server.StdoutPipe()
	if err != nil {
		return rate{}, err
	}
	if err := server.Start(); err != nil {
		return rate{}, err
	}
	var heard sync.WaitGroup
	defer server.Wait()
	defer heard.Wait()
	defer server.Process.Kill()
	if _, err := said.Read(make([]byte, 512)); err != nil { // it says that it listens
		return rate{}, err
	}
	heard.Go(func() { io.Copy(io.Discard, said) })
	out, err := exec.CommandContext(ctx, path, "-c", "127.0.0.1", "-p", port, "-n", fmt.Sprint(size), "-J").Output()
	if err != nil {
		return rate{}, err
	}
	var report struct {
		End struct {
			Received struct{ Seconds, Bytes float64 } `json:"sum_received"`
		} `json:"end"`
	}
	err = json.Unmarshal(out, &report)
	return rate{Bytes: int64(report.End.Received.Bytes), Seconds: report.End.Received.Seconds}, err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
