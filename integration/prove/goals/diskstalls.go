package goals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// still is what stands still: calls of one tenant.
type still struct {
	diskCase
	try    *diskTry
	n      int
	cancel context.CancelFunc
	calls  sync.WaitGroup
	errs   []error // stand behind calls.Wait
}

// begin has n calls of a tenant stand still, at least one of them.
func (d *disk) begin(ctx context.Context, p *proof.Point, n int) (*still, error) {
	s := &still{try: newDiskTry(p), n: n, errs: make([]error, n), diskCase: stalled(diskStalls[p.Rand.IntN(len(diskStalls))], n)}
	if err := s.try.furnish(d.place.Cwd(), n); err != nil {
		return nil, err
	}
	var err error
	if s.try.b, err = d.client("", p.Rand.IntN(2) == 0); err != nil {
		return nil, err
	}
	if _, err := s.try.b.Info(ctx); err != nil {
		return nil, err
	}
	p.Fault("standstill in " + string(s.fault.Call))
	d.fs.Plan(s.fault)
	ctx, s.cancel = context.WithCancel(ctx)
	for i := range n {
		s.calls.Go(func() { s.errs[i] = diskOps[s.op](s.try, ctx, i) })
	}
	err = check.Eventually(ctx, func() error {
		if d.fs.Waiting() == 0 {
			return fmt.Errorf("%s: no call stands still", s)
		}
		return nil
	})
	if err != nil {
		d.fs.Release()
	}
	return s, err
}

// end waits for the calls and tells whether they were answered. What hangs is
// let go.
func (s *still) end(ctx context.Context) error {
	answered := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(answered)
	}()
	return check.Eventually(ctx, func() error {
		select {
		case <-answered:
			return nil
		default:
			return errors.New("a call is not answered")
		}
	})
}

// someStill is how many calls stand still at once: now and then more than a
// tenant may have.
func someStill(p *proof.Point) int {
	if p.Rand.IntN(5) == 0 {
		return mostCalls * 3 / 2
	}
	return 1 + p.Rand.IntN(4)
}

// standStill has calls of one tenant stand still: those of another go on, and
// a cancel is answered.
func (d *disk) standStill(ctx context.Context, p *proof.Point) error {
	threads := threadsOf(d.daemon.PID())
	s, err := d.begin(ctx, p, someStill(p))
	if err != nil {
		return err
	}
	defer s.try.b.Close()
	p.State("stood still")
	if err := d.goesOn(ctx); err != nil {
		p.Violate("%s, %d times: beside it another tenant %v", s, s.n, err)
	}
	if now := threadsOf(d.daemon.PID()); now > threads+min(s.n, mostCalls)+spareThreads {
		p.Violate("%s, %d times: the daemon has %d threads, %d before", s, s.n, now, threads)
	}
	s.cancel()
	answered := s.end(ctx)
	if answered != nil {
		p.Violate("%s, %d times: cancelled, %v", s, s.n, answered)
	}
	d.fs.Release()
	s.calls.Wait()
	d.nothingLeft(ctx, p, s.diskCase, s.n)
	for i, err := range s.errs {
		if sandbox.KindOf(err) == sandbox.KindCancelled || err == nil {
			d.look(ctx, p, s.diskCase, s.try, i, err)
		}
		if err != nil {
			p.State("still, then " + string(sandbox.KindOf(err)))
		}
	}
	return nil
}

// spareThreads is how many threads more a daemon may have than calls that
// stand still.
const spareThreads = 16

// threadsOf counts the threads of a process.
func threadsOf(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "\nThreads:\t")
	n, _, _ := strings.Cut(rest, "\n")
	threads, _ := strconv.Atoi(n)
	return threads
}

// goesOn does some of everything as the other tenant.
func (d *disk) goesOn(ctx context.Context) error {
	b, err := d.daemon.Client(adapter.Options{Token: d.beside, Sandbox: "beside"})
	if err != nil {
		return err
	}
	defer b.Close()
	var err1, err2 error
	done := make(chan error, 1)
	go func() { done <- everything(ctx, b) }()
	err1 = check.Eventually(ctx, func() error {
		select {
		case err2 = <-done:
			return nil
		default:
			return errors.New("is not answered")
		}
	})
	if err1 != nil {
		d.fs.Release()
		<-done
	}
	return errors.Join(err1, err2)
}

func everything(ctx context.Context, b *adapter.Sandbox) error {
	text := []byte("beside it")
	if _, err := b.WriteFile(ctx, "b", text, sandbox.WriteOptions{}); err != nil {
		return err
	}
	if _, err := b.WriteFileStream(ctx, "b", bytes.NewReader(text), sandbox.WriteOptions{Sync: true}); err != nil {
		return err
	}
	if got, err := readAll(ctx, b, "b"); err != nil || !bytes.Equal(got, text) {
		return fmt.Errorf("reads %q, %w", got, err)
	}
	if _, err := b.ReadDir(ctx, ".", sandbox.ReadDirOptions{}); err != nil {
		return err
	}
	res, err := b.Exec(ctx, "cat b", sandbox.ExecOptions{})
	if err != nil || !bytes.Equal(res.Stdout, text) {
		return fmt.Errorf("runs %q, %w", res.Stdout, err)
	}
	return b.Rm(ctx, "b", sandbox.RmOptions{})
}

// endWhileStill ends the daemon while calls hang: they are answered, its ports
// are closed and it ends as soon as the kernel lets it.
func (d *disk) endWhileStill(ctx context.Context, p *proof.Point) error {
	s, err := d.begin(ctx, p, 1+p.Rand.IntN(3))
	if err != nil {
		return err
	}
	defer s.cancel()
	defer s.try.b.Close()
	if err := d.daemon.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.end(ctx); err != nil {
		p.Violate("%s: in the end of the daemon %v", s, err)
	}
	if err := check.Eventually(ctx, d.hasEnded); err != nil {
		p.Violate("%s: %v", s, err)
	}
	p.State("ended while a call hung")
	d.fs.Release()
	s.calls.Wait()
	if code, err := d.daemon.Wait(ctx); err != nil || code != 1 {
		p.Violate("%s: the daemon ended with %d, %v: %s", s, code, err, d.daemon.Log())
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	for i, err := range s.errs {
		if err == nil && s.op != "exists" {
			p.Violate("%s: a success", s)
		}
		d.look(ctx, p, s.diskCase, s.try, i, err)
	}
	d.nothingLeft(ctx, p, s.diskCase, s.n)
	return nil
}

// hasEnded tells what a daemon still does that shall have ended, whatever the
// kernel still does for it.
func (d *disk) hasEnded() error {
	if conn, err := net.Dial("tcp", d.daemon.Control()); err == nil {
		conn.Close()
		return errors.New("the daemon still accepts connections")
	}
	if !check.Ended(d.daemon.PID()) {
		return fmt.Errorf("the daemon runs on: %s", d.daemon.Log())
	}
	return nil
}
