package gate_test

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/rpc/server/gate"
)

// from is a connection that comes from an address.
type from struct {
	net.Conn
	addr netip.Addr
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(f.addr, 1)) }

func source(addr string) gate.Source { return gate.SourceOf(from{addr: netip.MustParseAddr(addr)}) }

// TestSourceOf: P13.1.
func TestSourceOf(t *testing.T) {
	for _, same := range [][2]string{
		{"10.0.0.1", "::ffff:10.0.0.1"}, {"2001:db8::1", "2001:db8::ffff:0:0:1"}, {"fe80::1%eth0", "fe80::2"},
	} {
		if source(same[0]) != source(same[1]) {
			t.Errorf("%s and %s are two sources", same[0], same[1])
		}
	}
	for _, two := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"127.0.0.1", "127.9.0.1"}, {"2001:db8::1", "2001:db8:0:1::1"}} {
		if source(two[0]) == source(two[1]) {
			t.Errorf("%s and %s are one source", two[0], two[1])
		}
	}
	if got := source("2001:db8::1").String(); got != "2001:db8::/64" {
		t.Errorf("named %s", got)
	}
}

// TestCrowd: P13.3. Over the bound of all, whoever has most loses its newest.
func TestCrowd(t *testing.T) {
	g := gate.New(gate.Limits{Strangers: 6, StrangersEach: 4})
	var out []string
	places := map[string]*gate.Place{}
	enter := func(addr, name string) bool {
		p, ok := g.Enter(source(addr), func() { out = append(out, name) })
		places[name] = p
		return ok
	}
	for i := range 5 {
		if got, want := enter("10.0.0.1", fmt.Sprint("a", i)), i < 4; got != want {
			t.Fatalf("a%d: %v", i, got)
		}
	}
	for i, want := range []bool{true, true, true} {
		if got := enter("10.0.0.2", fmt.Sprint("b", i)); got != want {
			t.Fatalf("b%d: %v", i, got)
		}
	}
	if fmt.Sprint(out) != "[a3]" {
		t.Fatalf("put out: %v", out)
	}
	if enter("10.0.0.1", "a5") || enter("10.0.0.2", "b3") {
		t.Fatal("a source with as many as any made another go")
	}
	if !enter("10.0.0.3", "c") || len(out) != 2 || out[1] != "a2" && out[1] != "b2" {
		t.Fatalf("an honest source beside two that fill the house: %v", out)
	}
	if n := g.Counts().Strangers; n != 6 {
		t.Fatalf("%d inside", n)
	}
	for _, p := range places {
		p.Leave()
		p.Leave()
	}
	if c := g.Counts(); c.Strangers != 0 || c.Crowded != 5 {
		t.Fatalf("%+v", c)
	}
	for range 4 {
		if _, ok := g.Enter(source("10.0.0.1"), func() {}); !ok {
			t.Fatal("no place, though all have left")
		}
	}
}

func TestCrowdAtOnce(t *testing.T) {
	g := gate.New(gate.Limits{Strangers: 20, StrangersEach: 10})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for range 200 {
				p, _ := g.Enter(source(fmt.Sprint("10.0.0.", i)), func() {})
				if n := g.Counts().Strangers; n > 20 {
					t.Errorf("%d inside", n)
				}
				p.Leave()
			}
		})
	}
	all.Wait()
	if c := g.Counts(); c.Strangers != 0 {
		t.Fatalf("%+v", c)
	}
}

// TestWaitGrowsAndEnds: P13.7, P13.4. Only beyond the allowance, only that source, only that
// kind, longer each time, never longer than Longest, and forgotten in the end.
func TestWaitGrowsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(gate.Limits{Hellos: 10, Tokens: 10, Longest: 8 * time.Second})
		bad, good := source("127.9.0.1"), source("127.0.0.1")
		for range 10 {
			g.Failed(gate.Hello, bad)
		}
		if w := g.Wait(gate.Hello, bad); w != 0 {
			t.Fatalf("within the allowance: %v", w)
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 8} {
			g.Failed(gate.Hello, bad)
			if w := g.Wait(gate.Hello, bad); w != want*time.Second {
				t.Fatalf("kept out for %v, want %d s", w, want)
			}
			if g.Wait(gate.Hello, good) != 0 || g.Wait(gate.Token, bad) != 0 {
				t.Fatal("kept out for what another did, or elsewhere")
			}
			time.Sleep(want * time.Second)
			if w := g.Wait(gate.Hello, bad); w != 0 {
				t.Fatalf("still kept out for %v", w)
			}
			g.Failed(gate.Hello, bad) // some have drained away
			g.Failed(gate.Hello, bad)
		}
		time.Sleep(11 * time.Minute)
		for range 10 {
			g.Failed(gate.Hello, bad)
		}
		if w := g.Wait(gate.Hello, bad); w != 0 {
			t.Fatalf("not forgotten: %v", w)
		}
		if c := g.Counts(); c.Failed[gate.Hello] == 0 || c.KeptOut[gate.Hello] == 0 || c.Failed[gate.Token] != 0 {
			t.Fatalf("%+v", c)
		}
	})
}

// TestNoBound: zero is off.
func TestNoBound(t *testing.T) {
	g := gate.New(gate.Limits{})
	s := source("127.0.0.1")
	for range 5000 {
		g.Failed(gate.Hello, s)
		if _, ok := g.Enter(s, func() { t.Fatal("put out") }); !ok {
			t.Fatal("kept out")
		}
	}
	if w := g.Wait(gate.Hello, s); w != 0 {
		t.Fatal(w)
	}
}

// TestAFloodOfSourcesMakesNobodyForgotten: P13.7. The memory is bounded, and what is
// in it stays; whoever finds no room is counted with its neighbours.
func TestAFloodOfSourcesMakesNobodyForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(gate.Limits{Hellos: 2, Longest: time.Hour, Window: time.Hour})
		bad := source("10.1.1.1")
		for range 3 {
			g.Failed(gate.Hello, bad)
		}
		flood := func(i int) gate.Source { return source(fmt.Sprintf("10.9.%d.%d", i>>8&255, i&255)) }
		for i := range 20000 {
			g.Failed(gate.Hello, flood(i))
		}
		if g.Wait(gate.Hello, bad) == 0 {
			t.Error("a flood of others bought a pardon")
		}
		if g.Wait(gate.Hello, flood(19999)) == 0 {
			t.Error("a source without room is not kept out with its neighbourhood")
		}
		if g.Wait(gate.Hello, flood(0)) != 0 {
			t.Error("a source of its own account is judged by its neighbours")
		}
		if g.Wait(gate.Hello, source("10.8.0.1")) != 0 {
			t.Error("another neighbourhood is kept out")
		}
		time.Sleep(11 * time.Hour)
		g.Failed(gate.Hello, source("10.7.0.1")) // finds room again
		for range 2 {
			g.Failed(gate.Hello, source("10.7.0.1"))
		}
		if g.Wait(gate.Hello, source("10.7.0.1")) == 0 || g.Wait(gate.Hello, source("10.7.0.2")) != 0 {
			t.Error("what counts no more still takes room")
		}
	})
}
