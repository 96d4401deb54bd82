package goals

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/faultproxy"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// falseSuccesses is G1: transfers and commands whose connections are cut.
func falseSuccesses(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G1", Promise: "what is reported as done is done, and what is reported as not done is not",
		Quick: 1000, Lanes: 24, Mutant: "close_is_success", Floor: 100,
		Open: opens(g, openFaulted),
		Judge: func(t *proof.Tally) []string {
			var missing []string
			if share := t.Inside(); share < 0.8 {
				missing = append(missing, fmt.Sprintf("%.0f %% of the cuts of files were inside of them, must be 80 %%", 100*share))
			}
			if n := t.States["struck"]; n*10 < t.Tries*8 {
				missing = append(missing, fmt.Sprintf("%d of %d faults struck, must be 80 %%", n, t.Tries))
			}
			for what, n := range map[string]int{"through a muxer": t.States["through a muxer"], "with a kill of the daemon": t.Faults["daemon kill"]} {
				if n*100 < t.Tries {
					missing = append(missing, fmt.Sprintf("%d of %d points %s, must be 1 %%", n, t.Tries, what))
				}
			}
			for i, n := range t.Offsets {
				if n == 0 && t.Tries >= 500 {
					missing = append(missing, fmt.Sprintf("no cut in tenth %d of a file", i))
				}
			}
			return missing
		},
	}
}

// faulted is a daemon under clients whose connections are cut.
type faulted struct {
	daemon *ground.Daemon
	place  *ground.Place
	atRest holdings
	mortal *pool[*stand] // for daemons that are killed
	kills  bool          // a strike is the daemon's end

	mu   sync.Mutex
	late []later
}

func openFaulted(ctx context.Context, g *ground.Ground) (*faulted, error) {
	f := &faulted{mortal: stands(g)}
	var err error
	if f.place, err = g.Place(); err != nil {
		return nil, err
	}
	f.daemon, err = f.place.Start(ctx, "--max-unauthenticated-each", "0", "--max-failed-hellos", "0", "--max-failed-tokens", "0", "--reconnect-grace", "1s", "--kept-outcomes", "5s")
	if err == nil {
		f.atRest, err = rest(ctx, f.daemon)
	}
	return f, err
}

// strike is what is done to the connections of one operation.
type strike struct {
	plane string
	fault faultproxy.Fault
}

// aStrike chooses a fault for a transfer of size bytes in a direction.
func aStrike(p *proof.Point, d faultproxy.Direction, size int64) strike {
	if p.Rand.IntN(100) < 15 {
		return onControl(p)
	}
	s := strike{"data", faultproxy.Fault{Kind: aCut(p.Rand), Direction: d}}
	head := int64(welcome)
	if d == faultproxy.Up {
		head = preamble
	}
	switch n := p.Rand.IntN(100); {
	case n < 90:
		s.fault.At = head + p.Rand.Int64N(size)
	case n < 95:
		s.fault.At = p.Rand.Int64N(head)
	default:
		s.fault.At = head + size
	}
	return s
}

// onControl chooses a fault anywhere in what an operation says.
func onControl(p *proof.Point) strike {
	s := strike{"control", faultproxy.Fault{Kind: aCut(p.Rand), Direction: faultproxy.Direction(p.Rand.IntN(2))}}
	s.fault.At = p.Rand.Int64N([]int64{700, 1500}[s.fault.Direction])
	return s
}

// wire connects a client that will be struck, and tells how long it may take.
func (f *faulted) wire(ctx context.Context, p *proof.Point, s strike) (*wire, context.Context, context.CancelFunc, error) {
	if f.kills {
		s.fault.Kind = faultproxy.Stall // for as long as it takes to kill the daemon
	}
	planned := map[string]faultproxy.Plan{s.plane: {Fault: s.fault}}
	connect := newWire
	if p.Rand.IntN(100) < muxedShare {
		p.State("through a muxer")
		connect = newMuxedWire
	}
	w, err := connect(f.daemon, planned["control"], planned["data"], adapter.Options{NoKeys: p.Rand.IntN(2) == 0})
	limit := time.Minute
	switch {
	case f.kills: // what was on its way then stays there
		limit = 4 * time.Second
	case silent(s.fault.Kind):
		limit = 700 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	return w, ctx, cancel, err
}

// muxedShare is how many points of a hundred go through a muxer, mortalShare
// how many kill their daemon.
const (
	muxedShare  = 3
	mortalShare = 3
)

// Try implements [proof.Prover].
func (f *faulted) Try(ctx context.Context, p *proof.Point) error {
	if p.Rand.IntN(100) < mortalShare {
		return f.daemonKilled(ctx, p)
	}
	switch n := p.Rand.IntN(100); {
	case n < 42:
		return f.read(ctx, p)
	case n < 80:
		return f.write(ctx, p)
	case n < 95:
		return f.exec(ctx, p)
	}
	return f.killed(ctx, p)
}

// counted counts what was done to an operation and what came of it.
func counted(p *proof.Point, op string, w *wire, s strike, err error) {
	if w.struck() {
		p.State("struck")
		p.Fault(s.plane + " " + string(s.fault.Kind))
	}
	if err == nil {
		p.State(op + " done")
	} else {
		p.State(op + " " + string(sandbox.KindOf(err)))
	}
}

// expected are the kinds of errors that a lost connection may lead to; a token
// dies with the connection that it was minted on.
var expected = []sandbox.Kind{sandbox.KindConnectionLost, sandbox.KindOutcomeUnknown, sandbox.KindTruncated, sandbox.KindAborted,
	sandbox.KindCancelled, sandbox.KindUnavailable, sandbox.KindTokenInvalid}

// wrongKind reports an error that speaks of something else than happened.
func wrongKind(p *proof.Point, op string, err error) {
	if err != nil && !slices.Contains(expected, sandbox.KindOf(err)) {
		p.Violate("%s: an error of kind %s: %v", op, sandbox.KindOf(err), err)
	}
}

// Close implements [proof.Prover].
func (f *faulted) Close(t *proof.Tally) error {
	if f.daemon == nil {
		return nil
	}
	defer f.daemon.Stop()
	f.mortal.Close(t)
	if !f.daemon.Alive() {
		t.ViolateAt(0, "the daemon ended: %s", f.daemon.Log())
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := check.Eventually(ctx, func() error { return f.atRest.exceeded(ctx, f.daemon) }); err != nil {
		t.ViolateAt(0, "after all clients have gone: %v", err)
	}
	for _, l := range f.late {
		l.look(t)
	}
	if err := check.Only(f.place.Cwd()); err != nil {
		t.ViolateAt(0, "after all points: %v", err)
	}
	return nil
}
