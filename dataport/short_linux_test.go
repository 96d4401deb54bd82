package dataport_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
)

// TestSendWelcomesFirst: whatever is sent and however, the welcome comes before
// it and is not counted.
func TestSendWelcomesFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		have, want int
		err        error
	}{
		"empty":            {0, 0, nil},
		"short":            {50 << 10, 50 << 10, nil},
		"part of a file":   {50 << 10, 10, nil},
		"longest short":    {64<<10 - 3, 64<<10 - 3, nil},
		"too long for one": {64<<10 - 2, 64<<10 - 2, nil},
		"long":             {3 << 20, 3 << 20, nil},
		"shrunk":           {100, 200, io.ErrUnexpectedEOF},
		"shrunk to none":   {0, 200, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			content := bytes.Repeat([]byte("0123456789"), tt.have/10+1)[:tt.have]
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			near, far := tcpPair(t)
			got := make(chan []byte, 1)
			go func() {
				b, _ := io.ReadAll(far)
				got <- b
			}()
			n, err := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute}).Send("", near, f, sandbox.Some(int64(tt.want)), never)
			near.CloseWrite()
			sent := content[:min(tt.have, tt.want)]
			if n != int64(len(sent)) || !errors.Is(err, tt.err) {
				t.Fatalf("%d, %v", n, err)
			}
			if b := <-got; string(b) != dataport.Welcome+string(sent) {
				t.Fatalf("%d bytes arrived", len(b))
			}
		})
	}
}

// thisFile opens a file of more than 100 bytes.
func thisFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open("short_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestSendShortThatHasEnded: a transfer that ended sends nothing.
func TestSendShortThatHasEnded(t *testing.T) {
	f := thisFile(t)
	near, _ := tcpPair(t)
	n, err := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute}).Send("", near, f, sandbox.Some(int64(100)), func() bool { return true })
	if n != 0 || err == nil {
		t.Fatalf("%d, %v", n, err)
	}
}

// writes notes how long the writes to a connection were.
type writes struct {
	*net.TCPConn
	all []int
}

// Write implements net.Conn.
func (w *writes) Write(p []byte) (int, error) {
	w.all = append(w.all, len(p))
	return w.TCPConn.Write(p)
}

// TestSendShortInOne: a short file leaves with the welcome.
func TestSendShortInOne(t *testing.T) {
	f := thisFile(t)
	near, _ := tcpPair(t)
	to := &writes{TCPConn: near}
	n, err := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute}).Send("", to, f, sandbox.Some(int64(100)), never)
	if n != 100 || err != nil || !slices.Equal(to.all, []int{len(dataport.Welcome) + 100}) {
		t.Fatalf("%d bytes in writes of %d, %v", n, to.all, err)
	}
}
