package dataport_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/fair"
	"github.com/controld/controld/sandbox"
)

// sparse makes a file of nothing, so long.
func sparse(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// sends starts so many sends of a sparse file for a tenant, whose peers read,
// and counts what these get. All end with the test.
func sends(t *testing.T, p *dataport.Pump, tenant string, n int, path string) *atomic.Int64 {
	t.Helper()
	var got atomic.Int64
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // behind the connections' ends
	for range n {
		near, far := tcpPair(t)
		running.Go(func() { sendSparse(p, tenant, near, path) })
		running.Go(func() { count(far, &got) })
	}
	return &got
}

func sendSparse(p *dataport.Pump, tenant string, conn net.Conn, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	st, _ := f.Stat()
	p.Send(tenant, conn, f, sandbox.Some(st.Size()), never)
}

func count(conn net.Conn, got *atomic.Int64) {
	buf := make([]byte, 256<<10)
	for {
		n, err := conn.Read(buf)
		got.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// wire is what connections share: one write at a time, at so many bytes a
// second.
type wire struct {
	turn chan struct{}
	rate int64
}

// wired is a connection whose bytes go over a wire.
type wired struct {
	net.Conn
	wire *wire
	sent atomic.Int64
}

func (c *wired) SetWriteDeadline(time.Time) error { return nil }

func (c *wired) Write(b []byte) (int, error) {
	c.wire.turn <- struct{}{}
	defer func() { <-c.wire.turn }()
	time.Sleep(time.Second * time.Duration(len(b)) / time.Duration(c.wire.rate))
	c.sent.Add(int64(len(b)))
	return len(b), nil
}

// TestTenantsShareThePump: one stream of a tenant beside many of another gets
// as many bytes as all of those. By themselves it would get one in seventeen.
func TestTenantsShareThePump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute, Turns: fair.New(fair.Options{Shared: 1, Linger: 500 * time.Millisecond})})
		w := &wire{turn: make(chan struct{}, 1), rate: 1 << 30}
		var over atomic.Bool
		var running sync.WaitGroup
		start := func(tenant string) *wired {
			c := &wired{wire: w}
			running.Go(func() { p.Send(tenant, c, zeros{}, sandbox.Optional[int64]{}, over.Load) })
			return c
		}
		var many []*wired
		for range 16 {
			many = append(many, start("many"))
		}
		few := start("few")
		time.Sleep(time.Second)
		over.Store(true)
		running.Wait()
		total := few.sent.Load()
		for _, c := range many {
			total += c.sent.Load()
		}
		if share := float64(few.sent.Load()) / float64(total); share < 0.45 || share > 0.55 {
			t.Errorf("one stream beside 16 of another tenant has %.2f of the bytes", share)
		}
	})
}

// TestStalledNeighboursHoldNobodyUp: peers that do not read keep their turn
// only for its time, and their own tenant goes on as well.
func TestStalledNeighboursHoldNobodyUp(t *testing.T) {
	path := sparse(t, 1<<40)
	p := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute, Turns: fair.New(fair.Options{Shared: 1, Linger: time.Hour})})
	var stalled sync.WaitGroup
	t.Cleanup(stalled.Wait)
	for range 8 {
		near, _ := tcpPair(t)
		stalled.Go(func() { sendSparse(p, "many", near, path) })
	}
	few := sends(t, p, "few", 1, path)
	awaitCount(t, few, 64<<20)
	awaitCount(t, sends(t, p, "many", 1, path), 64<<20)
}

func awaitCount(t *testing.T, got *atomic.Int64, least int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); got.Load() < least; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes came, want %d", got.Load(), least)
		}
	}
}

// TestQuotaBoundsBothWays: what is beyond the burst takes its time, whichever
// way it goes.
func TestQuotaBoundsBothWays(t *testing.T) {
	const bytesPerSecond, burst, size = 4 << 20, 256 << 10, 2 << 20
	least := time.Second * (size - burst) / bytesPerSecond
	quota := func(string) *rate.Limiter { return rate.NewLimiter(bytesPerSecond, burst) }
	for name, move := range map[string]func(p *dataport.Pump, near, far *net.TCPConn) (int64, error){
		"send a file": func(p *dataport.Pump, near, far *net.TCPConn) (int64, error) {
			go io.Copy(io.Discard, far)
			f, err := os.Open(sparse(t, size))
			if err != nil {
				return 0, err
			}
			defer f.Close()
			return p.Send("a", near, f, sandbox.Some(int64(size)), never)
		},
		"send a reader": func(p *dataport.Pump, near, far *net.TCPConn) (int64, error) {
			go io.Copy(io.Discard, far)
			return p.Send("a", near, zeros{}, sandbox.Some(int64(size)), never)
		},
		"receive": func(p *dataport.Pump, near, far *net.TCPConn) (int64, error) {
			go near.Write(make([]byte, size))
			got, err := p.Receive("a", far, io.Discard, false, func() (sandbox.Optional[int64], bool) { return sandbox.Some(int64(size)), false })
			return got.Bytes, err
		},
	} {
		near, far := tcpPair(t)
		began := time.Now()
		n, err := move(dataport.NewPump(dataport.PumpOptions{Stall: time.Minute, Quota: quota}), near, far)
		if took := time.Since(began); err != nil || n != size || took < least {
			t.Errorf("%s: %d bytes in %v, %v; that takes %v at least", name, n, took, err, least)
		}
	}
}

// TestQuotaEndsWithTheTransfer: a transfer that was ended does not wait for
// what it would have had to pay.
func TestQuotaEndsWithTheTransfer(t *testing.T) {
	near, far := tcpPair(t)
	go io.Copy(io.Discard, far)
	quota := rate.NewLimiter(1, 1<<20)
	p := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute, Quota: func(string) *rate.Limiter { return quota }})
	var ended atomic.Bool
	done := make(chan error, 1)
	go func() {
		_, err := p.Send("a", near, zeros{}, sandbox.Some(int64(4<<20)), ended.Load)
		done <- err
	}()
	for quota.Tokens() > 0 {
		time.Sleep(time.Millisecond)
	}
	ended.Store(true)
	if err := <-done; err == nil {
		t.Error("the whole went through")
	}
}
