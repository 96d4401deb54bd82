package daemon

import (
	"time"

	"github.com/controld/controld/sandbox"
)

// The end does not wait for ever for a call that the kernel does not give back,
// as one on a network file system whose server is gone.
const (
	// HangPatience is how long the first step of an end that hangs is waited
	// for, and hangMore any other.
	HangPatience = 3 * time.Second
	hangMore     = 500 * time.Millisecond
	// stopPatience is for what bounds its end itself, unless that hangs.
	stopPatience = 15 * time.Second
)

// close ends everything in the order in which it was used. Where something
// hangs the lock stays taken for as long as the process lives: what hangs may
// still change a file.
func (d *Daemon) close() {
	l := &leaving{tell: func(step string) {
		d.log.Error().Str("step", step).Msg("something does not come back: going on to end without it")
	}}
	gone := &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "transfer", Reason: sandbox.ReasonDraining, Outcome: sandbox.OutcomeNone}
	l.step("transfers", 0, func() { d.transfers.Close(gone) })
	l.step("connections", 0, func() {
		d.server.Close()
		d.serving.Wait()
	})
	l.step("keys", 0, d.keys.Close)
	l.step("sandboxes", stopPatience, func() {
		if err := d.host.Close(); err != nil {
			d.log.Warn().Err(err).Msg("stopping sandboxes")
		}
		for _, end := range d.ends {
			end()
		}
	})
	if d.keeper != nil {
		l.step("keeper", stopPatience, d.keeper.Close)
	}
	if d.audit != nil {
		l.step("audit", stopPatience, d.audit.close)
	}
	if !l.hung {
		d.lock.Close()
	}
}

// leaving takes the steps of an end.
type leaving struct {
	hung bool // a step did not end
	tell func(step string)
}

// step takes one, and leaves it behind when it hangs: after patience, or where
// that is 0 after what is left for it.
func (l *leaving) step(name string, patience time.Duration, do func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	switch {
	case patience > 0:
	case l.hung:
		patience = hangMore
	default:
		patience = HangPatience
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		l.hung = true
		l.tell(name)
	}
}
