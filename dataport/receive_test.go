package dataport_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
)

// TestWaitingReceptionsHoldNoBuffers: a reception without a pipe takes its
// buffer of 1 MiB when something has come, and all that comes arrives.
func TestWaitingReceptionsHoldNoBuffers(t *testing.T) {
	const receptions, size = 64, 3 << 20
	pump := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute, Splices: 1})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools are emptied in two steps
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	dir := t.TempDir()
	var senders []net.Conn
	var all sync.WaitGroup
	asked := make(chan struct{}, receptions)
	for range receptions {
		near, far := tcpPair(t)
		senders = append(senders, near)
		out, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { out.Close() })
		var once sync.Once
		all.Go(func() {
			got, err := pump.Receive("", far, out, false, func() (sandbox.Optional[int64], bool) {
				once.Do(func() { asked <- struct{}{} })
				return sandbox.Optional[int64]{}, false
			})
			if err != nil || got.Bytes != size+1 || !got.EOF {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	for _, conn := range senders {
		<-asked
		conn.Write([]byte("x"))
	}
	eventuallyHolds(t, dir, receptions)
	if more := heap() - before; more > 16<<20 {
		t.Errorf("%d waiting receptions hold %d bytes", receptions, more)
	}
	for _, conn := range senders {
		all.Go(func() {
			conn.Write(body)
			conn.(*net.TCPConn).CloseWrite()
		})
	}
	all.Wait()
}

// eventuallyHolds waits until each of n files holds a byte: then its
// reception waits for more.
func eventuallyHolds(t *testing.T, dir string, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		full := 0
		for _, name := range files {
			if st, err := os.Stat(name); err == nil && st.Size() == 1 {
				full++
			}
		}
		if full == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d files hold a byte", full, n)
		}
	}
}
