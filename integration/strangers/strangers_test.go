package strangers

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// serve has a function look after each connection to a new listener.
func serve(t *testing.T, each func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := Dial(t.Context(), 0, l.Addr().String()); err != nil {
		t.Skipf("127.9.0.0/16 is no address of this machine: %v", err)
	} else {
		conn.Close()
		l.Accept()
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				each(conn)
			})
		}
	})
	return l.Addr().String()
}

// TestCrowdIsSeenOut: everybody comes from many sources, the slow ones speak,
// and how long each was let in is told.
func TestCrowdIsSeenOut(t *testing.T) {
	const patience = 3 * time.Second
	var mu sync.Mutex
	from, said := map[string]bool{}, 0
	addr := serve(t, func(conn net.Conn) {
		conn.SetReadDeadline(time.Now().Add(patience))
		b, _ := io.ReadAll(conn)
		mu.Lock()
		defer mu.Unlock()
		host, _, _ := strings.Cut(conn.RemoteAddr().String(), ":")
		from[host] = true
		if len(b) > 0 {
			said++
		}
	})
	crowd, err := Gather(t.Context(), addr, 100, 30)
	if err != nil {
		t.Fatal(err)
	}
	defer crowd.Close()
	if crowd.Inside() != 130 {
		t.Errorf("%d are inside", crowd.Inside())
	}
	stayed, err := crowd.Watch(t.Context())
	if err != nil || len(stayed) != 130 || crowd.Inside() != 0 {
		t.Fatalf("%d were seen out, %d are inside, %v", len(stayed), crowd.Inside(), err)
	}
	for i, d := range stayed {
		if d < patience {
			t.Errorf("stranger %d was let in for %v", i, d)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(from) != sources || said != 30 {
		t.Errorf("of %d sources, %d spoke", len(from), said)
	}
}

// TestCrowdTells: who is answered, or stays, is an error.
func TestCrowdTells(t *testing.T) {
	for want, each := range map[string]func(net.Conn){
		"was answered": func(conn net.Conn) {
			io.WriteString(conn, "OK\n")
			io.Copy(io.Discard, conn)
		},
		"2 of 2 strangers": func(conn net.Conn) { io.Copy(io.Discard, conn) },
	} {
		t.Run(want, func(t *testing.T) {
			crowd, err := Gather(t.Context(), serve(t, each), 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer crowd.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, err := crowd.Watch(ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestPush sends all there is and waits for the end of the connection.
func TestPush(t *testing.T) {
	got := make(chan string, 1)
	addr := serve(t, func(conn net.Conn) {
		b := make([]byte, len("{junk"))
		io.ReadFull(conn, b)
		got <- string(b)
	})
	if err := Push(t.Context(), 7, addr, "{", []byte("junk"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if b := <-got; b != "{junk" {
		t.Errorf("sent %q", b)
	}
}
