package goals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// endsInTheMiddle is G21: daemons that end under a hundred transfers.
func endsInTheMiddle(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G21", Promise: "told to end, a daemon takes nothing new and ends what runs; killed, it starts again as fast as ever and clears up",
		Quick: 15, Lanes: 1,
		Open: opens(g, func(_ context.Context, g *ground.Ground) (*ends, error) { return &ends{ground: g}, nil }),
		Judge: func(t *proof.Tally) []string {
			var missing []string
			if n := t.States["transfers in the middle"]; n != t.Tries*underway {
				missing = append(missing, fmt.Sprintf("%d transfers were in the middle, must be %d", n, t.Tries*underway))
			}
			for _, end := range daemonEnds {
				if t.Faults[end.name] == 0 {
					missing = append(missing, "never: "+end.name)
				}
			}
			return missing
		},
	}
}

// underway is how many transfers a daemon is in the middle of when it ends.
const underway = 100

// daemonEnds are ways to end a daemon under transfers.
var daemonEnds = []struct {
	name string
	args []string
	by   func(*load, context.Context) error
}{
	{"SIGTERM, and all end in time", []string{"--drain-timeout", "1m"}, (*load).drained},
	{"SIGTERM, and none ends in time", []string{"--drain-timeout", "300ms"}, (*load).cutOff},
	{"SIGKILL", nil, (*load).killed},
}

// ends has the times that daemons took to start.
type ends struct {
	ground *ground.Ground
	mu     sync.Mutex
	// fresh are of starts on nothing, again of those behind a kill.
	fresh, again []time.Duration
}

// Try implements [proof.Prover].
func (e *ends) Try(ctx context.Context, p *proof.Point) error {
	end := daemonEnds[p.N%len(daemonEnds)]
	p.Fault(end.name)
	l := &load{p: p, ends: e, gate: make(chan struct{})}
	var err error
	if l.place, err = e.ground.Place(); err != nil {
		return err
	}
	began := time.Now()
	if l.daemon, err = l.place.Start(ctx, end.args...); err != nil {
		return err
	}
	e.note(&e.fresh, time.Since(began))
	defer func() { l.daemon.Stop() }() // whichever runs then
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.close()
	return end.by(l, ctx)
}

func (e *ends) note(to *[]time.Duration, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*to = append(*to, took)
}

// enough starts of each kind tell how long they take.
const enough = 5

// Close implements [proof.Prover].
func (e *ends) Close(t *proof.Tally) error {
	if len(e.fresh) < enough || len(e.again) < enough {
		return nil
	}
	fresh, again := median(e.fresh), median(e.again)
	t.Add("ms to start, half of the times", int(fresh.Milliseconds()))
	t.Add("ms to start behind a kill, half of the times", int(again.Milliseconds()))
	if again > 4*fresh+startSpare {
		t.ViolateAt(0, "a start behind a kill takes %v, on nothing %v", again, fresh)
	}
	return nil
}

// startSpare is what starts may differ by on a machine that has much to do.
const startSpare = 250 * time.Millisecond

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// load is a daemon in the middle of transfers, each of which goes on when the
// gate is opened, and of commands.
type load struct {
	p      *proof.Point
	ends   *ends
	place  *ground.Place
	daemon *ground.Daemon
	gate   chan struct{}
	open   sync.Once
	client *adapter.Sandbox
	moves  []*move
	all    sync.WaitGroup
	pids   []string // of the commands
}

// begin brings everything underway.
func (l *load) begin(ctx context.Context) (err error) {
	if l.client, err = l.daemon.Client(adapter.Options{RetryFor: 500 * time.Millisecond}); err != nil {
		return err
	}
	middle := make(chan struct{}, underway)
	for i := range underway {
		m := newMove(l.p, l.place.Cwd(), i)
		if err := m.furnish(); err != nil {
			return err
		}
		l.moves = append(l.moves, m)
		l.all.Go(func() {
			there := sync.OnceFunc(func() { middle <- struct{}{} })
			defer there() // also where it never was
			m.err = m.run(ctx, l.client, there, l.gate)
		})
	}
	for range underway {
		select {
		case <-middle:
			l.p.State("transfers in the middle")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// goOn opens the gate and waits for the end of all transfers.
func (l *load) goOn() {
	l.open.Do(func() { close(l.gate) })
	l.all.Wait()
}

func (l *load) close() {
	l.goOn()
	l.client.Close()
}

// draining waits until the daemon says that it takes nothing new, and sees that
// it keeps to that.
func (l *load) draining(ctx context.Context) error {
	if err := l.daemon.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	refused := func() error {
		b, err := l.daemon.Client(noOptions)
		if err != nil {
			return err
		}
		defer b.Close()
		if _, err = b.Info(ctx); isDraining(err) {
			return nil
		}
		return fmt.Errorf("hello: %w", orSuccess(err))
	}
	if err := check.Eventually(ctx, refused); err != nil {
		l.p.Violate("told to end, the daemon takes a stranger in: %v", err)
	}
	if err := l.client.Mkdir(ctx, "new", sandbox.MkdirOptions{}); !isDraining(err) {
		l.p.Violate("told to end, the daemon answers new work with %v", err)
	}
	return nil
}

// orSuccess makes an error of none.
func orSuccess(err error) error {
	if err == nil {
		return errors.New("a success")
	}
	return err
}

func isDraining(err error) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Kind == sandbox.KindUnavailable && e.Reason == sandbox.ReasonDraining && e.Outcome == sandbox.OutcomeNone
}

// drained has all transfers end: all do, and then the daemon does.
func (l *load) drained(ctx context.Context) error {
	if err := l.draining(ctx); err != nil {
		return err
	}
	l.goOn()
	for _, m := range l.moves {
		if m.err != nil {
			l.p.Violate("a %s that ran when the daemon was told to end: %v", m, m.err)
		}
	}
	if code, err := l.daemon.Wait(ctx); err != nil || code != 0 {
		l.p.Violate("drained, the daemon ended with %d, %v: %s", code, err, l.daemon.Log())
	}
	return l.look(true)
}

// cutOff has none end: the daemon ends all the same.
func (l *load) cutOff(ctx context.Context) error {
	if err := l.draining(ctx); err != nil {
		return err
	}
	if code, err := l.daemon.Wait(ctx); err != nil || code != 1 {
		l.p.Violate("not drained, the daemon ended with %d, %v: %s", code, err, l.daemon.Log())
	}
	return l.lost()
}

// killed kills the daemon, and looks at the next one.
func (l *load) killed(ctx context.Context) error {
	if err := l.command(ctx); err != nil {
		return err
	}
	l.daemon.Kill()
	began := time.Now()
	next, err := l.place.Start(ctx)
	if err != nil {
		l.p.Violate("behind a kill: %v", err)
		return nil
	}
	l.ends.note(&l.ends.again, time.Since(began))
	l.daemon = next
	for _, pid := range l.pids {
		if check.Running(pid) {
			l.p.Violate("a process of the daemon that was killed lives when the next one is ready")
		}
	}
	if err := l.look(false); err != nil {
		return err
	}
	return l.lost()
}

// lost opens the gate: nothing is behind it any more.
func (l *load) lost() error {
	l.goOn()
	for _, m := range l.moves {
		if m.err == nil {
			l.p.Violate("a %s whose daemon ended in its middle is a success", m)
		}
	}
	return l.look(false)
}
