//go:build linux

package local

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/proctree"
	"golang.org/x/sys/unix"
)

const (
	shell = "/bin/sh"
	// maxTimeout is the longest time limit of a command.
	maxTimeout = 604800 * time.Second
	// defaultGrace lies between TERM and KILL.
	defaultGrace = 100 * time.Millisecond
	// killPatience is how long an answer waits for the end of a killed tree.
	killPatience = 250 * time.Millisecond
	// maxArg is the kernel's limit of one argument, its NUL included.
	maxArg = 128 << 10
)

// Exec implements sandbox.API.
func (s *Sandbox) Exec(ctx context.Context, command string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	none := sandbox.ShellResult{}
	if err := keyless("exec", "", opts.RequestKey); err != nil {
		return none, err
	}
	plan, err := s.planExec(command, opts)
	if err != nil {
		return none, err
	}
	if err := s.begin("exec", opts.Cwd); err != nil {
		return none, err
	}
	defer s.execs.Done()
	r, err := s.startIn(ctx, command, plan, opts.Cwd)
	if err != nil {
		return none, err
	}
	return r.result(ctx)
}

// startIn starts a command in the directory cwd. A directory that a caller
// names is entered through the descriptor it was found by; for the sandbox's
// own, which is on the way of most commands, its name will do, and the rest is
// for telling what was wrong with it.
func (s *Sandbox) startIn(ctx context.Context, command string, plan plan, cwd string) (*run, error) {
	if cwd == "" && ctx.Err() == nil {
		s.awaken()
		r, err := s.startRun(command, plan, s.opts.DefaultCwd)
		if err == nil {
			return r, nil
		}
		if errors.Is(err, proctree.ErrLost) { // once is enough
			return nil, errLost()
		}
	}
	dir, err := s.execDir(cwd)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	if ctx.Err() != nil {
		return nil, sandbox.Cancelled(ctx, "exec", "")
	}
	r, err := s.startRun(command, plan, procFD(dir))
	if err != nil {
		return nil, startError(err, dir, cwd)
	}
	return r, nil
}

// awaken meets a file system that hangs before a fork does, which would hold up
// everybody else's: it holds ForkLock, or the keeper. What is said is the
// fork's to find out.
func (s *Sandbox) awaken() { unix.Access(s.opts.DefaultCwd, unix.X_OK) }

// plan is a command's checked parameters.
type plan struct {
	env     []string
	stdin   []byte
	limit   int64
	timeout time.Duration
	grace   time.Duration
	grow    func(n int) bool
}

func (s *Sandbox) planExec(command string, o sandbox.ExecOptions) (plan, error) {
	p := plan{stdin: o.Stdin, limit: s.opts.Limits.MaxOutputBytes, timeout: o.Timeout, grace: defaultGrace, grow: o.Grow}
	if o.MaxOutputBytes.Known {
		p.limit = o.MaxOutputBytes.Value
	}
	if o.KillGrace.Known {
		p.grace = o.KillGrace.Value
	}
	var wrong string
	switch {
	case strings.IndexByte(command, 0) >= 0:
		wrong = "a NUL in the command"
	case o.Timeout < 0 || o.Timeout > maxTimeout:
		wrong = "timeout out of range"
	case p.limit < 0 || p.limit > s.opts.Limits.MaxOutputBytes:
		wrong = "max_output_bytes out of range"
	case p.grace < 0 || p.grace > maxTimeout:
		wrong = "kill_grace out of range"
	}
	if wrong == "" {
		p.env, wrong = environment(s.opts.DefaultCwd, o.Env)
	}
	if wrong != "" {
		return p, invalid("exec", "", wrong)
	}
	if len(command) >= maxArg {
		return p, fail("exec", "", syscall.E2BIG)
	}
	for _, entry := range p.env {
		if len(entry) >= maxArg {
			return p, fail("exec", "", syscall.E2BIG)
		}
	}
	return p, nil
}

// execDir opens the directory a command starts in.
func (s *Sandbox) execDir(cwd string) (int, error) {
	dir := cwd
	if dir == "" {
		dir = s.opts.DefaultCwd
	}
	place, err := s.paths.LocatePlain(dir)
	if err != nil {
		return -1, fail("exec", cwd, err)
	}
	defer place.Close()
	fd, err := place.OpenDir()
	if err != nil {
		return -1, fail("exec", cwd, err)
	}
	return fd, nil
}

// startError tells why a command did not start. The kernel's number does not
// say whether the directory or the shell was meant, so the directory is asked.
func startError(err error, dir int, cwd string) error {
	if errors.Is(err, proctree.ErrClosed) {
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "exec", Reason: sandbox.ReasonDraining, Outcome: sandbox.OutcomeNone}
	}
	if errors.Is(err, proctree.ErrLost) {
		return errLost()
	}
	var starting *startFailure
	if !errors.As(err, &starting) {
		return fail("exec", "", err)
	}
	if denied := unix.Faccessat2(dir, ".", unix.X_OK, unix.AT_EACCESS); denied == syscall.EACCES {
		return fail("exec", cwd, denied)
	}
	e := *sandbox.AsError("exec", "", starting.err)
	e.Op, e.Path = "exec", ""
	if e.Kind != sandbox.KindArgumentTooLong {
		e.Kind, e.Outcome = sandbox.KindStartFailed, ""
		e.Message = "cannot start " + shell
		if e.Errno != "" {
			e.Message += " (" + e.Errno + ")"
		}
	}
	return &e
}

// errLost says that the keeper died over a command.
func errLost() error {
	return &sandbox.Error{Kind: sandbox.KindInternal, Op: "exec", Message: "the process that keeps commands was killed", Outcome: sandbox.OutcomeUnknown}
}

// startFailure is an error of the start itself.
type startFailure struct{ err error }

func (e *startFailure) Error() string { return e.err.Error() }

func (e *startFailure) Unwrap() error { return e.err }

// pipe makes a pipe. The end that stays here does not block; the other does,
// as a command expects.
func pipe(ours int) (here, there *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	// O_NONBLOCK is the only flag of a pipe that can be set.
	if _, err := unix.FcntlInt(uintptr(fds[ours]), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[ours]), "pipe"), os.NewFile(uintptr(fds[1-ours]), "pipe"), nil
}
