package goals

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/controld/controld/integration/faultproxy"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
)

// kills is G2: daemons and clients that are killed in the middle of uploads.
func kills(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G2", Promise: "when daemon or client are killed in an upload, readers see the old file or the new, and nothing is left of it",
		Quick: 120, Lanes: 3,
		Open: opens(g, openKilled),
		Judge: func(t *proof.Tally) []string {
			var missing []string
			for state, least := range map[string]float64{"old after daemon kill": .05, "new after daemon kill": .05, "old after client kill": .05, "new after client kill": .05, "temp at the kill": .3} {
				if share := t.Seen(state); share < least {
					missing = append(missing, fmt.Sprintf("%s: %.0f %% of the tries, must be %.0f %%", state, 100*share, 100*least))
				}
			}
			return missing
		},
	}
}

// uploadSize and uploadRate make an upload of an eighth of a second.
const (
	uploadSize = 512 << 10
	uploadRate = 4 << 20
)

// killed has places for uploads.
type killed struct {
	*pool[*stand]
	whole time.Duration // a whole upload, measured
}

func openKilled(ctx context.Context, g *ground.Ground) (*killed, error) {
	k := &killed{pool: stands(g), whole: time.Minute}
	u, err := k.take(ctx)
	if err != nil {
		return k, err
	}
	defer k.give(u)
	for range 3 {
		took, err := undisturbed(ctx, u)
		if err != nil {
			return k, err
		}
		k.whole = min(k.whole, took)
	}
	return k, nil
}

// undisturbed makes a whole upload and tells how long it took.
func undisturbed(ctx context.Context, u *stand) (time.Duration, error) {
	r := &round{u: u, newer: make([]byte, uploadSize)}
	began := time.Now()
	if err := r.begin(ctx); err != nil {
		return 0, err
	}
	defer r.end()
	if err := r.client.Wait(); err != nil {
		return 0, fmt.Errorf("an upload that nobody disturbs: %w: %s", err, r.said.String())
	}
	return time.Since(began), nil
}

// Try implements [proof.Prover]. The kill comes anywhere from before the upload
// to behind it.
func (k *killed) Try(ctx context.Context, p *proof.Point) error {
	u, err := k.take(ctx)
	if err != nil {
		return err
	}
	defer k.give(u)
	r := &round{u: u, p: p, sync: p.Rand.IntN(2) == 0}
	r.older, r.newer = content(p.Rand, uploadSize/4), content(p.Rand, uploadSize)
	if err := put(r.path(), r.older); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.end()
	stop := r.observe()
	time.Sleep(time.Duration(p.Rand.Float64() * 1.6 * float64(k.whole)))
	victim := "client"
	if p.N%2 == 0 {
		victim = "daemon"
	}
	r.kill(victim)
	if err := r.settle(ctx, victim); err != nil {
		return err
	}
	p.Add("looks of the observer", stop())
	r.judge(victim)
	return nil
}

// round is one upload with its end.
type round struct {
	u            *stand
	p            *proof.Point
	sync         bool
	older, newer []byte
	proxy        *faultproxy.Proxy
	client       *exec.Cmd
	said         bytes.Buffer
	source       string
}

func (r *round) path() string { return filepath.Join(r.u.place.Cwd(), "f") }

// begin starts the client, a process of its own, on a wire that is slow.
func (r *round) begin(ctx context.Context) (err error) {
	r.source = filepath.Join(filepath.Dir(r.u.place.State()), "source")
	if err := os.WriteFile(r.source, r.newer, 0o644); err != nil {
		return err
	}
	slow := func(int) faultproxy.Plan { return faultproxy.Plan{Rate: uploadRate} }
	if r.proxy, err = faultproxy.Listen(faultproxy.To("tcp", r.u.daemon.Data()), slow); err != nil {
		return err
	}
	args := []string{"cp", "-q", "--data-addr", "tcp://" + r.proxy.Addr()}
	if r.sync {
		args = append(args, "--sync")
	}
	r.client = r.u.daemon.Command(ctx, append(args, r.source, ":f")...)
	r.client.Stderr = &r.said
	return r.client.Start()
}

func (r *round) end() { r.proxy.Close() }

// glance lies between two looks of the observer.
const glance = 100 * time.Microsecond

// observe reads the file all the time, until stop, and reports what is neither
// old nor new. stop tells how often it has looked.
func (r *round) observe() (stop func() int) {
	versions := r.versions()
	quit, done := make(chan struct{}), make(chan struct{})
	looks := 0
	var wrong error
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(glance): // the others want to get on, too
			}
			if _, err := check.Version(r.path(), versions); err != nil && wrong == nil {
				wrong = err
			}
			looks++
		}
	}()
	return func() int {
		close(quit)
		<-done
		if wrong != nil {
			r.p.Violate("the observer: %v", wrong)
		}
		return looks
	}
}

func (r *round) versions() map[string]string {
	return map[string]string{"old": check.Digest(r.older), "new": check.Digest(r.newer)}
}

// kill stops the victim, looks, and kills it.
func (r *round) kill(victim string) {
	r.p.Fault("SIGKILL of the " + victim)
	d := r.u.daemon
	d.Signal(syscall.SIGSTOP) // nothing moves while we look
	if check.Temps(d.PID(), r.u.place.Cwd(), "f") > 0 {
		r.p.State("temp at the kill")
	}
	if victim == "daemon" {
		d.Kill()
		return
	}
	r.client.Process.Kill()
	d.Signal(syscall.SIGCONT)
}

// settle waits for what is left of the round: a daemon that was killed starts
// again, and nobody keeps a temp.
func (r *round) settle(ctx context.Context, victim string) (err error) {
	if victim == "daemon" {
		if r.u.daemon, err = r.u.place.Start(ctx); err != nil {
			return err
		}
		// A client that knows the verdict has ended; another one would go on
		// looking for its daemon.
		defer time.AfterFunc(200*time.Millisecond, func() { r.client.Process.Kill() }).Stop()
	}
	r.client.Wait()
	left := check.Eventually(ctx, func() error {
		if n := check.Temps(r.u.daemon.PID(), r.u.place.Cwd(), "f"); n > 0 {
			return fmt.Errorf("%d temps are left behind the kill of the %s", n, victim)
		}
		return nil
	})
	if left != nil {
		r.p.Violate("%v", left)
	}
	return nil
}

// judge looks at the file and at what the client said.
func (r *round) judge(victim string) {
	version, err := check.Version(r.path(), r.versions())
	if err != nil {
		r.p.Violate("after the kill of the %s: %v", victim, err)
		return
	}
	r.p.State(version + " after " + victim + " kill")
	if r.client.ProcessState.Success() {
		r.p.State("client said done")
		if version != "new" {
			r.p.Violate("the client said done, the file is the old one")
		}
	}
}
