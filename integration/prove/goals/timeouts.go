package goals

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// timeouts is G8: commands that would not end, many at once, on a machine whose
// cores are busy.
func timeouts(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G8", Promise: "a timeout ends its command, soon after and never before",
		Quick: 500, Lanes: 16,
		Open: opens(g, openTimeouts),
		Judge: func(t *proof.Tally) []string {
			if n := t.States["timed out"]; n < t.Tries || n < leastTimeouts {
				return []string{fmt.Sprintf("%d of %d commands timed out, must be all and %d", n, t.Tries, leastTimeouts)}
			}
			if over, most := t.Figures[overAsked].Quantile(.9), mostOver(t); over > most {
				return []string{fmt.Sprintf("one timeout in ten takes %.3g ms over what was asked or more, must be %.3g", over, most)}
			}
			return nil
		},
	}
}

// The figures of G8: what a command takes over its timeout, with a daemon and
// with a timer and a signal of this process.
const (
	overAsked = "over the timeout, ms"
	overBare  = "over the timeout by a bare timer and signal, ms"
)

// mostOver is some times the most that the bare way took.
func mostOver(t *proof.Tally) float64 { return mostTimes * t.Figures[overBare].Max() }

// tooLate is what no load of a machine explains: the daemon looks through all
// processes for those that have hidden, and waits for its turn to do so.
func tooLate(t *proof.Tally) float64 { return 1000 + 10*t.Figures[overBare].Max() }

// leastTimeouts is how many it takes for a verdict.
const leastTimeouts = 100

// A timeout is between the least and the most.
const (
	leastTimeout = 50 * time.Millisecond
	mostTimeout  = 250 * time.Millisecond
)

// ending runs commands that would not end.
type ending struct {
	served
	busy busy
}

func openTimeouts(ctx context.Context, g *ground.Ground) (*ending, error) {
	e := &ending{}
	err := e.open(ctx, g)
	if err == nil {
		e.busy, err = keepBusy()
	}
	return e, err
}

// forever is a command with a child, both of which say something and stay.
const forever = "echo begun; sleep 60"

// Try implements [proof.Prover]: one command by the daemon and one without.
func (e *ending) Try(ctx context.Context, p *proof.Point) error {
	limit := leastTimeout + time.Duration(p.Rand.Int64N(int64(mostTimeout-leastTimeout)))
	began := time.Now()
	res, err := e.client.Exec(ctx, forever, sandbox.ExecOptions{Timeout: limit})
	took := time.Since(began)
	switch {
	case err != nil:
		p.Violate("a command with a timeout of %v said %v after %v", limit, err, took)
		return nil
	case res.Reason != sandbox.ReasonTimedOut || res.ExitCode != sandbox.ExitTimedOut:
		p.Violate("a command with a timeout of %v said %+v after %v", limit, res, took)
	case took < limit || res.Duration < limit:
		p.Violate("a timeout of %v took %v and says %v", limit, took, res.Duration)
	default:
		p.State("timed out")
	}
	if res.KillPending {
		p.State("answers before the last process")
	}
	p.Measure(overAsked, millis(took-limit))
	took, err = bareTimeout(limit)
	p.Measure(overBare, millis(took-limit))
	return err
}

// bareTimeout ends the same command by a timer and a signal to its group.
func bareTimeout(limit time.Duration) (time.Duration, error) {
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", forever)
	cmd.Stdout = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	timer := time.AfterFunc(limit, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) })
	defer timer.Stop()
	cmd.Wait() // says that it was killed
	return time.Since(began), nil
}

// Close implements [proof.Prover]. What one in four takes is no outlier.
func (e *ending) Close(t *proof.Tally) error {
	f := t.Figures[overAsked]
	if over, most := f.Quantile(.75), tooLate(t); f.N() >= leastTimeouts && over > most {
		t.ViolateAt(0, "one in four of %d timeouts takes %.3g ms over what was asked or more, must be %.3g", f.N(), over, most)
	}
	e.busy.end()
	e.end()
	return nil
}
