package goals

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// orphans is G9: an agent that is process 1, to which all orphans go.
func orphans(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G9", Promise: "as process 1 the daemon reaps every orphan, and loses no exit status to that",
		Quick: 1000, Lanes: 4, // two thousand orphans and more
		Open: opens(g, openOrphans),
		Judge: func(t *proof.Tally) []string {
			var missing []string
			if n := t.States["orphans"]; n < 2*t.Tries {
				missing = append(missing, fmt.Sprintf("%d orphans of %d commands", n, t.Tries))
			}
			if n := t.States["looks"]; n*100 < t.Tries {
				missing = append(missing, fmt.Sprintf("%d looks at %d commands", n, t.Tries))
			}
			if n := t.Control["zombies of a first process that reaps nobody"]; n != carelessOrphans {
				missing = append(missing, fmt.Sprintf("a first process that reaps nobody has %d zombies, must have %d", n, carelessOrphans))
			}
			if n := t.States["most zombies at a look"]; n > fewZombies {
				missing = append(missing, fmt.Sprintf("%d zombies at a look, must be %d: the machine is too busy to tell", n, fewZombies))
			}
			return missing
		},
	}
}

const (
	// fewZombies may be there at a look: orphans die one by one and are reaped
	// in turns. manyZombies are not reaped, on however busy a machine.
	fewZombies  = 64
	manyZombies = 400
	// carelessOrphans are those of the control.
	carelessOrphans = 20
)

// orphaned is an agent that is process 1, and somebody who counts zombies.
type orphaned struct {
	first *ground.First
	sb    *adapter.Sandbox

	quit context.CancelFunc
	look sync.WaitGroup
	// They stand behind look.Wait.
	most, looks int
}

func openOrphans(ctx context.Context, g *ground.Ground) (*orphaned, error) {
	o := &orphaned{}
	dir, err := g.Dir()
	if err != nil {
		return nil, err
	}
	o.first, err = ground.StartFirst(ctx, g.Binary(), dir)
	if errors.Is(err, ground.ErrMissing) {
		return nil, proof.Lacking(err.Error())
	}
	if err != nil {
		return nil, err
	}
	if o.sb, err = adapter.New(adapter.Options{Control: o.first.URL, Token: o.first.Secret}); err != nil {
		return nil, err
	}
	ctx, o.quit = context.WithCancel(ctx)
	o.look.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond) // the others want to get on, too
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			o.most, o.looks = max(o.most, check.Zombies(o.first.PID, "sleep")), o.looks+1
		}
	})
	return o, nil
}

// Try implements [proof.Prover].
func (o *orphaned) Try(ctx context.Context, p *proof.Point) error {
	code, n := p.Rand.IntN(120), 2+p.Rand.IntN(2)
	// The inner shells orphan children that end by themselves.
	orphan := fmt.Sprintf("(sleep 0.0%d >/dev/null 2>&1 &); ", p.Rand.IntN(4))
	command := fmt.Sprint(strings.Repeat(orphan, n), "exit ", code)
	res, err := o.sb.Exec(ctx, command, sandbox.ExecOptions{})
	if err != nil || res.ExitCode != code || res.Reason != sandbox.ReasonExited {
		p.Violate("a command that exits with %d: %+v, %v", code, res, err)
	}
	p.Add("orphans", n)
	return nil
}

// Close implements [proof.Prover].
func (o *orphaned) Close(t *proof.Tally) error {
	defer o.first.Stop()
	defer o.sb.Close()
	left := check.Eventually(context.Background(), func() error {
		if n := check.Zombies(o.first.PID, "sleep"); n > 0 {
			return fmt.Errorf("%d zombies are left", n)
		}
		return nil
	})
	if left != nil {
		t.ViolateAt(0, "%v", left)
	}
	o.quit()
	o.look.Wait()
	t.Add("looks", o.looks)
	t.Add("most zombies at a look", o.most)
	if o.most > manyZombies {
		t.ViolateAt(0, "%d zombies at a look", o.most)
	}
	return careless(t)
}

// careless counts what a first process leaves that reaps nobody.
func careless(t *proof.Tally) error {
	ctx := context.Background()
	pid, stop, err := ground.StartCareless(ctx, fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 0.2 & i=$((i+1)); done", carelessOrphans))
	if err != nil {
		return err
	}
	defer stop()
	check.Eventually(ctx, func() error {
		if n := check.Zombies(pid, "sleep"); n < carelessOrphans {
			return fmt.Errorf("%d zombies", n)
		}
		return nil
	})
	t.Fails("zombies of a first process that reaps nobody", check.Zombies(pid, "sleep"))
	return nil
}
