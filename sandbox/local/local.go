//go:build linux

package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/proctree"
	"github.com/controld/controld/sandbox/local/root"
)

var _ sandbox.Backend = (*Sandbox)(nil)

// closePatience is how long Close waits for processes that were killed.
const closePatience = 5 * time.Second

// Sandbox is a sandbox.Backend on the machine itself.
type Sandbox struct {
	opts    Options
	paths   *root.Root
	forest  *proctree.Forest
	journal *journal
	temps   sync.Map // names of temps, see temp.record
	locks   keyLocks
	clock   atomic.Int64 // the last time stamp given to a file
	named   atomic.Bool  // temps get names at once: files without do not work

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	execs  sync.WaitGroup
	null   *os.File // what commands without input read
	reads  readBuffers
	sizes  chan os.Signal    // SIGXFSZ, which ends a program that does not ask for it
	left   map[*run]struct{} // commands whose result was given, with living processes

	killPatience time.Duration // killPatience, but in tests
}

// New makes a sandbox. Close it.
func New(o Options) (*Sandbox, error) {
	if o.DefaultCwd == "" {
		return nil, &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: "new", Message: "no directory to start in"}
	}
	if unix.Access("/proc/self/fd", unix.X_OK) != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "new", Message: "/proc is not mounted"}
	}
	cwd, err := filepath.Abs(o.DefaultCwd)
	if err != nil {
		return nil, fail("new", o.DefaultCwd, err)
	}
	o.DefaultCwd = cwd
	if o.Epoch == "" {
		o.Epoch = newUUID()
	}
	o.Limits = withDefaults(o.Limits)
	s := &Sandbox{opts: o, paths: root.New(cwd), left: make(map[*run]struct{}), killPatience: killPatience}
	if err := s.makeCwd(); err != nil {
		return nil, err
	}
	if s.journal, err = openJournal(o.StateDir, newUUID(), o.User.private()); err != nil {
		return nil, fail("new", o.StateDir, err)
	}
	if s.null, err = os.Open(os.DevNull); err != nil {
		s.journal.close()
		return nil, fail("new", os.DevNull, err)
	}
	noCores()
	ownDescriptors()
	s.forest, err = proctree.Open(proctree.Options{
		Walk:   o.Cgroups == CgroupsOff,
		Name:   proctree.CgroupPrefix + newUUID(),
		Env:    "HOME=" + o.DefaultCwd,
		Limits: proctree.Limits(o.Each),
		Record: s.journal.remains,
		Keeper: o.Keeper,
		User:   o.User.credential(),
	})
	if err != nil {
		s.null.Close()
		s.journal.close()
		if errors.Is(err, proctree.ErrNoLimits) {
			return nil, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "new", Message: err.Error(), Err: err}
		}
		return nil, fail("new", "", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.sizes = make(chan os.Signal, 1)
	signal.Notify(s.sizes, syscall.SIGXFSZ) // so that a write over the limit is an error
	return s, nil
}

func (s *Sandbox) makeCwd() error {
	place, err := root.New("/").Locate("", s.opts.DefaultCwd)
	if err == nil {
		defer place.Close()
		err = place.MkdirAll()
	}
	if err != nil {
		return fail("new", s.opts.DefaultCwd, err)
	}
	return nil
}

// ownDescriptors keeps descriptors that this process was started with from
// reaching commands; Go marks those that it opens itself.
func ownDescriptors() {
	unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// noCores keeps commands from leaving core files. A limit cannot be set
// between fork and exec, so it is this process's own that they inherit.
func noCores() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_CORE, &limit) == nil && limit.Cur != 0 {
		limit.Cur = 0
		syscall.Setrlimit(syscall.RLIMIT_CORE, &limit)
	}
}

// Close kills every process that was started here, waits for it and releases
// everything. Calls that still run get unavailable. It may be called twice.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.execs.Wait()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	hurry := time.AfterFunc(closePatience, s.forest.Hurry) // a grace may be a week
	s.execs.Wait()
	hurry.Stop()
	signal.Stop(s.sizes)
	empty := s.forest.Close(closePatience)
	s.mu.Lock()
	left := s.left
	s.left = nil
	s.mu.Unlock()
	for r := range left {
		r.drop()
	}
	s.null.Close()
	if !empty {
		return errors.Join(failKind(sandbox.KindBusy, "close", "", "a process could not be killed"), s.journal.leave())
	}
	return s.journal.close()
}

// begin counts a command in, unless the sandbox is closed.
func (s *Sandbox) begin(op, path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: op, Path: path, Reason: sandbox.ReasonDraining, Outcome: sandbox.OutcomeNone}
	}
	s.execs.Add(1)
	return nil
}

// ready refuses a call whose context has ended or whose sandbox is closed.
func (s *Sandbox) ready(ctx context.Context, op, path string) error {
	if ctx.Err() != nil {
		return sandbox.Cancelled(ctx, op, path)
	}
	if s.ctx.Err() != nil {
		return &sandbox.Error{Kind: sandbox.KindUnavailable, Op: op, Path: path, Reason: sandbox.ReasonDraining, Outcome: sandbox.OutcomeNone}
	}
	return nil
}

// Info implements sandbox.Backend.
func (s *Sandbox) Info(ctx context.Context) (sandbox.Info, error) {
	if err := s.ready(ctx, "info", ""); err != nil {
		return sandbox.Info{}, err
	}
	return sandbox.Info{
		Tenant:       s.opts.Tenant,
		Sandbox:      s.opts.Sandbox,
		Cwd:          s.opts.DefaultCwd,
		Epoch:        s.opts.Epoch,
		Capabilities: []sandbox.Capability{sandbox.CapExec, sandbox.CapScope, sandbox.CapIfMatch, sandbox.CapSync, sandbox.CapDigest},
		Limits:       s.opts.Limits,
		Tree:         s.forest.Kind(),
	}, nil
}

func withDefaults(l sandbox.Limits) sandbox.Limits {
	d := sandbox.DefaultLimits()
	or(&l.MaxMessageBytes, d.MaxMessageBytes)
	or(&l.MaxInflight, d.MaxInflight)
	or(&l.MaxQueued, d.MaxQueued)
	or(&l.MaxWaitingTransfers, d.MaxWaitingTransfers)
	or(&l.MaxBatch, d.MaxBatch)
	or(&l.MaxDepth, d.MaxDepth)
	or(&l.MaxBufferedBytes, d.MaxBufferedBytes)
	or(&l.MaxOutputBytes, d.MaxOutputBytes)
	or(&l.MaxBufferedInflightBytes, d.MaxBufferedInflightBytes)
	or(&l.WriteTimeout, d.WriteTimeout)
	or(&l.TokenTTL, d.TokenTTL)
	or(&l.StallTimeout, d.StallTimeout)
	or(&l.KeptOutcomes, d.KeptOutcomes)
	or(&l.ReconnectGrace, d.ReconnectGrace)
	return l
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
