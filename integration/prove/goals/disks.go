package goals

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/faultfs"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/rpc"
)

// disks is G4f: sandboxes on a file system that fails, lies or stands still.
func disks(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G4f", Promise: "a disk that fails or lies is no success, one that stands still is nobody else's trouble, and nothing is left of either",
		Quick: 120, Lanes: 4,
		Open: opens(g, openDisks),
		Judge: func(t *proof.Tally) []string {
			var missing []string
			for state, least := range map[string]float64{"struck": .5, "stood still": .1, "ended while a call hung": .01} {
				if share := t.Seen(state); share < least {
					missing = append(missing, fmt.Sprintf("%s: %.0f %% of the tries, must be %.0f %%", state, 100*share, 100*least))
				}
			}
			return missing
		},
	}
}

// faultyDisks has disks.
type faultyDisks struct{ *pool[*disk] }

// disk is a daemon whose sandboxes lie on a file system with faults. What it
// says is also to be seen below that, by this program.
type disk struct {
	fs     *faultfs.FS
	place  *ground.Place
	daemon *ground.Daemon
	beside string // the secret of another tenant
	atRest holdings
}

// mostCalls is how many calls and transfers a tenant has at once here.
const mostCalls = 32

func openDisks(ctx context.Context, g *ground.Ground) (*faultyDisks, error) {
	all := &faultyDisks{&pool[*disk]{
		open: func(ctx context.Context) (*disk, error) { return openDisk(ctx, g) },
		end:  (*disk).end,
	}}
	d, err := all.take(ctx)
	if errors.Is(err, faultfs.ErrMissing) {
		return all, proof.Lacking(err.Error())
	}
	if err == nil {
		all.give(d)
	}
	return all, err
}

func openDisk(ctx context.Context, g *ground.Ground) (*disk, error) {
	d := &disk{}
	var err error
	if d.place, err = g.Place(); err != nil {
		return nil, err
	}
	if d.beside, err = d.place.Admit("beside"); err != nil {
		return nil, err
	}
	if err = os.MkdirAll(d.place.Sandboxes(), 0o700); err != nil {
		return nil, err
	}
	if d.fs, err = faultfs.Mount(d.place.Sandboxes()); err != nil {
		return nil, err
	}
	d.place.Starts = d.fs.Start
	if err = d.start(ctx); err != nil {
		d.fs.Close()
	}
	return d, err
}

func (d *disk) end() {
	d.fs.Release()
	d.daemon.Stop()
	d.fs.Close()
}

func (d *disk) start(ctx context.Context) (err error) {
	d.daemon, err = d.place.Start(ctx, "--drain-timeout", "200ms", "--reconnect-grace", "100ms", "--kept-outcomes", "1s",
		"--max-calls", fmt.Sprint(mostCalls), "--max-transfers", fmt.Sprint(mostCalls))
	if err == nil {
		d.atRest, err = rest(ctx, d.daemon)
	}
	return err
}

// client connects a client that waits a moment for the word on a cancel.
func (d *disk) client(token string, noKeys bool) (*adapter.Sandbox, error) {
	return d.daemon.Client(adapter.Options{Token: token, NoKeys: noKeys, RetryFor: time.Second,
		Conn: rpc.ConnOptions{CancelTimeout: 200 * time.Millisecond}})
}

// Try implements [proof.Prover].
func (all *faultyDisks) Try(ctx context.Context, p *proof.Point) error {
	d, err := all.take(ctx)
	if err != nil {
		return err
	}
	defer all.give(d)
	switch n := p.Rand.IntN(100); {
	case n < 75:
		return d.fail(ctx, p)
	case n < 96:
		return d.standStill(ctx, p)
	}
	return d.endWhileStill(ctx, p)
}

// The files of a try are numbered: the text of f is read and replaced, victim
// and the tree d removed, new made.
type diskTry struct {
	b            *adapter.Sandbox
	older, newer []byte
}

// listed is what the directories d hold.
var listed = []string{"x0", "x1", "x2", "x3"}

// furnish puts everything in its place, n times, and nothing else.
func (t *diskTry) furnish(cwd string, n int) error {
	err := errors.Join(os.MkdirAll(filepath.Dir(cwd), 0o755), os.MkdirAll(cwd, 0o755))
	left, rerr := os.ReadDir(cwd)
	for _, e := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(cwd, e.Name())))
	}
	for i := range n {
		err = errors.Join(err, put(filepath.Join(cwd, name("f", i)), t.older), put(filepath.Join(cwd, name("victim", i)), nil))
		for _, x := range listed {
			err = errors.Join(err, put(filepath.Join(cwd, name("d", i), x), nil))
		}
	}
	return errors.Join(err, rerr)
}

// furnished are the names that may be there afterwards.
func furnished(n int) (names []string) {
	for i := range n {
		for _, what := range []string{"f", "victim", "d", "new"} {
			names = append(names, name(what, i))
		}
	}
	return names
}

func name(what string, i int) string { return fmt.Sprint(what, i) }
