//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/proctree"
	"golang.org/x/sys/unix"
)

const (
	// drainMax bounds how long a result waits for output after the shell's
	// end, however much a background process still writes.
	drainMax = 500 * time.Millisecond
	// settle is how long a result waits for the end of output that has
	// stopped coming: a helper of the shell may be a moment behind it.
	settle = 50 * time.Millisecond
	// tidyAtOnce is how many finished trees a start cleans up at most.
	tidyAtOnce = 2
)

// run is a command that was started.
type run struct {
	s              *Sandbox
	plan           plan
	tree           *proctree.Tree
	started        time.Time
	stdin          *os.File // nil where there is no input
	stdout, stderr *collector
}

// startRun starts a command in the directory dir.
func (s *Sandbox) startRun(command string, p plan, dir string) (*run, error) {
	s.tidyLeft()
	r := &run{s: s, plan: p}
	files, err := r.openPipes()
	defer s.closeFiles(files)
	if err != nil {
		r.abandon()
		return nil, err
	}
	if strings.HasPrefix(command, "-") || strings.HasPrefix(command, "+") {
		command = " " + command // or the shell would take it for options
	}
	cmd := proctree.Command{Path: shell, Args: []string{shell, "-c", command}, Env: p.env, Dir: dir, Files: files}
	if r.tree, err = s.forest.Start(cmd); err != nil {
		r.abandon()
		return nil, &startFailure{err}
	}
	r.started = time.Now()
	go r.stdout.run(&s.reads)
	go r.stderr.run(&s.reads)
	if r.stdin != nil {
		go func() {
			r.stdin.Write(p.stdin) // a command need not read it
			r.stdin.Close()
		}()
	}
	return r, nil
}

// openPipes makes the pipes and returns the command's ends of them.
func (r *run) openPipes() ([]*os.File, error) {
	var files []*os.File
	if len(r.plan.stdin) == 0 {
		files = append(files, r.s.null)
	} else {
		here, there, err := pipe(1)
		if err != nil {
			return files, err
		}
		r.stdin, files = here, append(files, there)
	}
	for _, c := range []**collector{&r.stdout, &r.stderr} {
		here, there, err := pipe(0)
		if err != nil {
			return files, err
		}
		*c, files = newCollector(here, r.plan.limit, r.plan.grow), append(files, there)
	}
	return files, nil
}

// closeFiles closes a command's ends of its pipes.
func (s *Sandbox) closeFiles(files []*os.File) {
	for _, f := range files {
		if f != s.null {
			f.Close()
		}
	}
}

// abandon closes the pipes of a command that did not start.
func (r *run) abandon() {
	if r.stdin != nil {
		r.stdin.Close()
	}
	for _, c := range []*collector{r.stdout, r.stderr} {
		if c != nil {
			c.pipe.Close()
		}
	}
}

// drop closes what a background process still writes to.
func (r *run) drop() {
	for _, c := range []*collector{r.stdout, r.stderr} {
		c.pipe.Close()
		<-c.done
	}
}

// result waits for the command, its time limit or the end of ctx.
func (r *run) result(ctx context.Context) (sandbox.ShellResult, error) {
	var limit <-chan time.Time
	if r.plan.timeout > 0 {
		timer := time.NewTimer(r.plan.timeout - time.Since(r.started))
		defer timer.Stop()
		limit = timer.C
	}
	select {
	case <-r.tree.Exited():
		return r.ended()
	case <-limit:
	case <-ctx.Done():
	case <-r.s.ctx.Done():
	}
	select {
	case <-r.tree.Exited(): // it was first after all
		return r.ended()
	default:
	}
	switch {
	case ctx.Err() != nil:
		r.end()
		r.discard()
		return sandbox.ShellResult{}, sandbox.Cancelled(ctx, "exec", "")
	case r.s.ctx.Err() != nil:
		r.end()
		r.discard()
		return sandbox.ShellResult{}, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "exec", Reason: sandbox.ReasonDraining, Outcome: sandbox.OutcomeUnknown}
	}
	pending := !r.end()
	res := sandbox.ShellResult{ExitCode: sandbox.ExitTimedOut, Reason: sandbox.ReasonTimedOut, Background: pending, KillPending: pending}
	r.fill(&res)
	return res, nil
}

// end kills the tree and gives it up; false when some of it could not be
// killed in time.
func (r *run) end() bool {
	empty := r.tree.End(r.plan.grace, r.s.killPatience)
	r.drain()
	r.leave(!empty)
	return empty
}

// ended makes the result of a shell that ended by itself.
func (r *run) ended() (sandbox.ShellResult, error) {
	status, err := r.tree.State()
	res := sandbox.ShellResult{Reason: sandbox.ReasonExited, Duration: time.Since(r.started)}
	r.drain()
	res.Background = r.tree.Alive()
	oom := r.tree.OOMKills() > 0
	r.leave(res.Background)
	r.fill(&res)
	if errors.Is(err, proctree.ErrLost) {
		return sandbox.ShellResult{}, errLost()
	}
	if err != nil {
		return sandbox.ShellResult{}, fail("exec", "", err)
	}
	if res.ExitCode = status.ExitStatus(); status.Signaled() {
		res.ExitCode = 128 + int(status.Signal())
		res.Reason, res.Signal = sandbox.ReasonSignaled, signalName(status.Signal())
	}
	if oom && res.ExitCode == 128+int(syscall.SIGKILL) {
		res.Reason = sandbox.ReasonOOMKilled
	}
	return res, nil
}

func (r *run) fill(res *sandbox.ShellResult) {
	if res.Duration == 0 {
		res.Duration = time.Since(r.started)
	}
	res.Stdout, res.StdoutOmitted = r.stdout.finish(&r.s.reads)
	res.Stderr, res.StderrOmitted = r.stderr.finish(&r.s.reads)
}

// discard lets go of outputs that nobody will see.
func (r *run) discard() {
	r.stdout.discard()
	r.stderr.discard()
}

// signalName returns a signal's name without SIG, its number where it has
// none.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(int(sig))
}

// drain waits for the end of the output. When a background process keeps it
// open, it waits a moment, and then for all that is in the pipes by now.
func (r *run) drain() {
	if r.stdin != nil {
		r.stdin.Close()
	}
	timer := time.NewTimer(settle)
	defer timer.Stop()
	if r.outputEnds(timer.C) {
		return
	}
	timer.Reset(drainMax)
	for _, c := range []*collector{r.stdout, r.stderr} {
		select {
		case <-c.done:
		case <-c.drained():
		case <-timer.C:
			return
		}
	}
}

// outputEnds waits for the end of both outputs; false when late came first.
func (r *run) outputEnds(late <-chan time.Time) bool {
	for _, c := range []*collector{r.stdout, r.stderr} {
		select {
		case <-c.done:
		case <-late:
			return false
		}
	}
	return true
}

// leave releases the tree, or keeps what lives of it until the sandbox ends.
func (r *run) leave(alive bool) {
	if !alive {
		r.tree.Release()
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	select {
	case <-r.stdout.done:
		select {
		case <-r.stderr.done:
			if !alive {
				return
			}
		default:
		}
	default:
	}
	if r.s.left == nil {
		return
	}
	r.s.left[r] = struct{}{}
}

// tidyLeft looks at a few of the trees left in the background and releases
// those that have ended.
func (s *Sandbox) tidyLeft() {
	var some []*run
	s.mu.Lock()
	for r := range s.left {
		if some = append(some, r); len(some) == tidyAtOnce {
			break
		}
	}
	s.mu.Unlock()
	for _, r := range some {
		if r.tree.Alive() {
			continue
		}
		r.tree.Release()
		s.mu.Lock()
		_, mine := s.left[r]
		delete(s.left, r)
		s.mu.Unlock()
		if mine {
			r.drop()
		}
	}
}
