package goals

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// end is a way for a command to end before it has ended.
type end struct {
	name string
	// by ends the command of a cell and reports what is wrong at once.
	by func(c *cell, ctx context.Context) error
}

var commandEnds = []end{
	{"timeout", (*cell).timeout},
	{"cancel", (*cell).cancel},
	{"client death", (*cell).clientDeath},
	{"SIGTERM of the daemon", (*cell).daemonTerm},
	{"SIGKILL of the daemon", (*cell).daemonKill},
}

// holdings of process trees: by cgroups, and without.
var treeModes = []string{"auto", "off"}

// survivors is G7: a point is a shape, an end and a way to hold trees.
func survivors(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G7", Promise: "of a command that ends by force no process is left",
		Quick: len(shapes) * len(commandEnds) * len(treeModes), Lanes: 6,
		Open: opens(g, func(_ context.Context, g *ground.Ground) (*cells, error) { return &cells{g}, nil }),
		Judge: func(t *proof.Tally) []string {
			if t.States["ended"] < t.Tries {
				return []string{fmt.Sprintf("%d of %d commands came to their end", t.States["ended"], t.Tries)}
			}
			return nil
		},
	}
}

// cells makes a cell for each point.
type cells struct{ ground *ground.Ground }

// Close implements [proof.Prover].
func (*cells) Close(*proof.Tally) error { return nil }

// cell is one daemon with one command that will be ended.
type cell struct {
	p      *proof.Point
	place  *ground.Place
	daemon *ground.Daemon
	args   []string
	shape  shape
}

// Try implements [proof.Prover].
func (cs *cells) Try(ctx context.Context, p *proof.Point) error {
	c := &cell{p: p, shape: shapes[p.N%len(shapes)]}
	e := commandEnds[p.N/len(shapes)%len(commandEnds)]
	mode := treeModes[p.N/len(shapes)/len(commandEnds)%len(treeModes)]
	p.Fault(e.name + ", cgroups " + mode)
	var err error
	if c.place, err = cs.ground.Place(); err != nil {
		return err
	}
	c.args = []string{"--cgroups", mode, "--reconnect-grace", "100ms", "--drain-timeout", "100ms"}
	if c.daemon, err = c.place.Start(ctx, c.args...); err != nil {
		return err
	}
	defer func() { c.daemon.Stop() }() // whichever runs then
	if err := e.by(c, ctx); err != nil {
		return fmt.Errorf("%s, %s, cgroups %s: %w", c.shape.name, e.name, mode, err)
	}
	c.look(ctx, e, mode)
	return nil
}

// look counts what is left. A machine that is busy may take longer than an
// answer waits, so it is given a while.
func (c *cell) look(ctx context.Context, e end, mode string) {
	pids := c.pids()
	if len(pids) == 0 {
		c.p.Violate("%s, %s, cgroups %s: the command never began", c.shape.name, e.name, mode)
		return
	}
	c.p.State("ended")
	c.p.Add("processes", len(pids))
	left := check.Eventually(ctx, func() error {
		for _, pid := range pids {
			if check.Running(pid) {
				return fmt.Errorf("%s of %s survives", pid, pids)
			}
		}
		return nil
	})
	if left != nil {
		c.p.Violate("%s, %s, cgroups %s: %v", c.shape.name, e.name, mode, left)
	}
}

// pids are those that the command has written down.
func (c *cell) pids() []string {
	text, _ := os.ReadFile(filepath.Join(c.place.Cwd(), "pids"))
	return strings.Fields(string(text))
}

// begun waits until the command has written its processes down.
func (c *cell) begun(ctx context.Context) error {
	return check.Eventually(ctx, func() error {
		if len(c.pids()) == 0 {
			return fmt.Errorf("%s has not begun: %s", c.shape.name, c.daemon.Log())
		}
		return nil
	})
}

// run runs the command until it has begun; ended yields what is said of it, at
// the latest after cancel.
func (c *cell) run(ctx context.Context) (ended chan error, cancel func(), err error) {
	sb, err := c.daemon.Client(noOptions)
	if err != nil {
		return nil, nil, err
	}
	ended = make(chan error, 1)
	ctx, cancel = context.WithCancel(ctx)
	go func() {
		defer sb.Close()
		_, err := sb.Exec(ctx, c.shape.command, sandbox.ExecOptions{})
		ended <- err
	}()
	if err = c.begun(ctx); err != nil {
		cancel()
	}
	return ended, cancel, err
}

// limit is the timeout of commands: long enough for all shapes to begin, on a
// machine that is busy too.
const limit = time.Second

func (c *cell) timeout(ctx context.Context) error {
	sb, err := c.daemon.Client(noOptions)
	if err != nil {
		return err
	}
	defer sb.Close()
	res, err := sb.Exec(ctx, c.shape.command, sandbox.ExecOptions{Timeout: limit})
	if err != nil || res.ExitCode != sandbox.ExitTimedOut || res.Reason != sandbox.ReasonTimedOut {
		c.p.Violate("a timeout said %+v, %v", res, err)
	}
	if res.KillPending {
		c.p.State("answers before the last process")
	}
	return nil
}

func (c *cell) cancel(ctx context.Context) error {
	ended, cancel, err := c.run(ctx)
	if err != nil {
		return err
	}
	cancel()
	if err := <-ended; sandbox.KindOf(err) != sandbox.KindCancelled {
		c.p.Violate("a cancel said %v", err)
	}
	return nil
}

// clientDeath kills a client that is a process of its own.
func (c *cell) clientDeath(ctx context.Context) error {
	client := c.daemon.Command(ctx, "exec", c.shape.command)
	if err := client.Start(); err != nil {
		return err
	}
	defer client.Wait()
	defer client.Process.Kill()
	return c.begun(ctx)
}

func (c *cell) daemonTerm(ctx context.Context) error {
	ended, cancel, err := c.run(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if err := c.daemon.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if code, err := c.daemon.Wait(ctx); err != nil || code != 1 {
		c.p.Violate("after a SIGTERM the daemon ended with %d, %v", code, err)
	}
	if err := <-ended; err == nil {
		c.p.Violate("a command that the daemon's end has ended is a success")
	}
	return nil
}

// daemonKill kills the daemon; what it leaves is the next one's to end, before
// it says that it is ready.
func (c *cell) daemonKill(ctx context.Context) error {
	ended, cancel, err := c.run(ctx)
	if err != nil {
		return err
	}
	c.daemon.Kill()
	cancel()
	if err := <-ended; err == nil {
		c.p.Violate("a command that the daemon's end has ended is a success")
	}
	if c.daemon, err = c.place.Start(ctx, c.args...); err != nil {
		return err
	}
	for _, pid := range c.pids() {
		if check.Running(pid) {
			c.p.Violate("%s: process %s outlived the next start", c.shape.name, pid)
		}
	}
	return nil
}
