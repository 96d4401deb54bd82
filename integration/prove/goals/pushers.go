package goals

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/integration/strangers"
	"github.com/controld/controld/rpc"
)

// pushers is G11: strangers who push bytes and dial again, in every guise.
func pushers(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G11", Promise: "what strangers push is not kept, and holds no hello up",
		Quick: 8, Lanes: 1,
		Open: opens(g, openPushers),
		Judge: func(t *proof.Tally) []string {
			missing := missingWindows(t, hellos)
			if t.States["pushes"] < leastPushes {
				missing = append(missing, fmt.Sprintf("%d pushes, must be %d", t.States["pushes"], leastPushes))
			}
			return missing
		},
	}
}

const hellos = "hello"

// pushersAtOnce push pushBytes each, over and over, for the time of a window:
// pushTime at the daemon, less at the bare process; helloTime is one without
// them.
const (
	pushersAtOnce = 200
	pushBytes     = 512 << 10
	pushTime      = 1250 * time.Millisecond
	barePushTime  = 500 * time.Millisecond
	helloTime     = 250 * time.Millisecond
	leastPushes   = 1000
)

// pushedMost is by how much the daemon may grow.
const pushedMost = 32 << 20

// pushed is a daemon whose ports strangers push at. A process that is pushed at
// answers later than one that is not: the bare one says how much later.
type pushed struct {
	place  *ground.Place
	daemon *ground.Daemon
	bare   *ground.Bare
	before int64 // memory of the daemon
}

func openPushers(ctx context.Context, g *ground.Ground) (f *pushed, err error) {
	f = &pushed{}
	if f.bare, err = g.StartBare(ctx); err != nil {
		return f, err
	}
	if f.place, err = g.Place(); err != nil {
		return f, err
	}
	if f.daemon, err = f.place.Start(ctx); err != nil {
		return f, err
	}
	if _, err := window(ctx, helloTime, f.hello); err != nil {
		return f, err
	}
	f.before, err = check.Memory(f.daemon.PID(), "VmRSS")
	return f, err
}

// hello connects and says who it is.
func (f *pushed) hello(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", f.daemon.Control())
	if err != nil {
		return err
	}
	control := rpc.NewConn(conn, rpc.ConnOptions{})
	defer control.Close()
	_, err = control.Hello(ctx, rpc.HelloParams{Protocol: rpc.ProtocolVersion, Token: f.place.Secret, Client: "prove/1"})
	return err
}

// ping connects to the bare process and has one line answered.
func (f *pushed) ping(ctx context.Context) error {
	a, err := f.bare.Asker(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Ask("ping")
}

// Try implements [proof.Prover]. Every other point asks the bare process too.
func (f *pushed) Try(ctx context.Context, p *proof.Point) error {
	alone, err := window(ctx, helloTime, f.hello)
	if err != nil {
		return err
	}
	controls := map[string][]time.Duration{aloneControl: alone}
	if p.N%2 == 0 {
		bare := pushing{control: f.bare.Addr, data: f.bare.Addr, call: f.ping, lasts: barePushTime}
		if err := bare.run(ctx); err != nil {
			return err
		}
		controls[bareControl] = bare.took
	}
	ours := pushing{control: f.daemon.Control(), data: f.daemon.Data(), call: f.hello, lasts: pushTime}
	if err := ours.run(ctx); err != nil {
		return err
	}
	p.Add("pushes", int(ours.pushes.Load()))
	compare(&p.Tally, hellos, ours.took, controls)
	return f.weigh(p)
}

// weigh looks at what the daemon has kept.
func (f *pushed) weigh(p *proof.Point) error {
	peak, err := check.Memory(f.daemon.PID(), "VmHWM")
	if err != nil {
		return err
	}
	p.Measure("growth, MiB", float64(peak-f.before)/(1<<20))
	if grown := peak - f.before; grown > pushedMost {
		p.Violate("the daemon grew by %d bytes", grown)
	}
	return nil
}

// pushing is one side, with a call that is made meanwhile.
type pushing struct {
	control, data string
	call          func(context.Context) error
	lasts         time.Duration
	pushes        atomic.Int64
	took          []time.Duration
}

// run pushes and calls.
func (s *pushing) run(ctx context.Context) (err error) {
	pushing, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	junk, guises := bytes.Repeat([]byte("x"), pushBytes), strangers.Guises()
	for i := range pushersAtOnce {
		all.Go(func() {
			for round := i; pushing.Err() == nil; round++ {
				g, addr := guises[round%len(guises)], s.control
				if g.Data {
					addr = s.data
				}
				if strangers.Push(pushing, i, addr, g.Begin, junk, mostTimes*strangerTime) == nil {
					s.pushes.Add(1)
				}
			}
		})
	}
	s.took, err = window(ctx, s.lasts, s.call)
	return err
}

// Close implements [proof.Prover].
func (f *pushed) Close(t *proof.Tally) error {
	closeWindows(t, hellos)
	if f.daemon != nil {
		f.daemon.Stop()
	}
	if f.bare != nil {
		return f.bare.Close()
	}
	return nil
}
