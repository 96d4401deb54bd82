package drivers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/uuid"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// canaryEnv holds a canary in the host's environment.
const canaryEnv = "CONTROLD_TEST_CANARY"

// siege is a host with a hostile tenant and one beside it.
type siege struct {
	*testing.T
	state, canary, outside string
	host                   *sandboxhost.Host
	bounded, ownKernel     bool
	foe, beside            sandbox.Backend
	epoch                  string // of the one beside

	mu    sync.Mutex
	times []time.Duration // of the answers to the one beside
}

// begin starts the host and both sandboxes. Where the driver bounds them, all of
// it is below a cgroup of the test's own.
func begin(t *testing.T, k kind) *siege {
	t.Helper()
	s := &siege{T: t, ownKernel: k.needs == "runsc", canary: "canary-" + uuid.NewString(), outside: t.TempDir()}
	t.Setenv(canaryEnv, s.canary)
	config := sandboxhost.Config{StateDir: filepath.Join(t.TempDir(), "state"), Limits: sandbox.DefaultLimits(), Ended: s.cleared}
	if s.bounded = k.bounded != nil; s.bounded {
		config.Driver = k.bounded(t, outer(t))
		config.Box = sandboxhost.Box{Memory: boxMemory, Processes: boxProcesses}
	} else {
		config.Driver = k.driver(t)
	}
	s.state = config.StateDir
	var err error
	if s.host, err = sandboxhost.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.host.Close(); err != nil {
			t.Error(err)
		}
	})
	s.beside = s.backend("beside")
	s.foe = s.backend("foe")
	s.hide()
	return s
}

// cleared is told of every sandbox that has ended.
func (s *siege) cleared(spec sandboxhost.Spec, death sandboxhost.Death, err error) {
	s.Logf("%s ended: %+v", spec.Tenant, death)
	if err != nil {
		s.Errorf("%s could not be cleared away: %v", spec.Tenant, err)
	}
}

func (s *siege) backend(tenant string) sandbox.Backend {
	s.Helper()
	b, err := s.host.Backend(s.Context(), tenant, "default")
	if err != nil {
		s.Fatal(err)
	}
	return b
}

// hide puts canaries wherever the foe should not come.
func (s *siege) hide() {
	s.Helper()
	for _, path := range []string{filepath.Join(s.outside, "f"), filepath.Join(s.state, "f")} {
		if err := os.WriteFile(path, []byte(s.canary), 0o666); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := s.beside.WriteFile(s.Context(), "f", []byte(s.canary), sandbox.WriteOptions{}); err != nil {
		s.Fatal(err)
	}
	if _, err := s.beside.Exec(s.Context(), "setsid sleep 1000 "+s.canary+" >/dev/null 2>&1 &", sandbox.ExecOptions{}); err != nil {
		s.Fatal(err)
	}
	info, err := s.beside.Info(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	s.epoch = info.Epoch
	self, err := os.Open(os.Args[0])
	if err != nil {
		s.Fatal(err)
	}
	defer self.Close()
	if _, err := s.foe.WriteFileStream(s.Context(), "foe", self, sandbox.WriteOptions{Mode: sandbox.Some[uint32](0o755)}); err != nil {
		s.Fatal(err)
	}
}

// does has the foe run a command.
func (s *siege) does(command string, timeout time.Duration) sandbox.ShellResult {
	s.Helper()
	r, err := s.foe.Exec(s.Context(), command, sandbox.ExecOptions{Timeout: timeout})
	if err != nil {
		s.Errorf("%s: %v", command, err)
	}
	return r
}

// recovers wants the foe's own sandbox to answer again.
func (s *siege) recovers() {
	s.Helper()
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(10 * time.Millisecond) {
		r, err := s.foe.Exec(s.Context(), "echo on", sandbox.ExecOptions{Timeout: time.Second})
		if err == nil && string(r.Stdout) == "on\n" {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("the foe's sandbox does not recover: %+v, %v", r, err)
		}
	}
}

// asks asks the sandbox beside until ctx ends, and keeps how long it took.
func (s *siege) asks(ctx context.Context) {
	for ctx.Err() == nil {
		for _, ask := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := s.beside.Stat(ctx, "f", sandbox.StatOptions{}); return err },
			func(ctx context.Context) error { _, err := s.beside.Exec(ctx, ":", sandbox.ExecOptions{}); return err },
		} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(s.Context(), daemonTimeout)
			err := ask(ctx)
			cancel()
			if err != nil {
				s.Errorf("the sandbox beside: %v", err)
				return
			}
			s.mu.Lock()
			s.times = append(s.times, time.Since(began))
			s.mu.Unlock()
		}
	}
}

// p99 is that of the answers since the last time that it was asked.
func (s *siege) p99() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.times) == 0 {
		return 0
	}
	slices.Sort(s.times)
	t := s.times[len(s.times)*99/100]
	s.times = nil
	return t
}

// TestHostileWorkload: what a tenant's commands do is its own sandbox's affair.
// The one beside answers, nothing of it or of the host is seen or changed, and
// nothing is left.
func TestHostileWorkload(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			s := begin(t, k)
			ctx, cancel := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			asking.Go(func() { s.asks(ctx) })
			time.Sleep(500 * time.Millisecond) // long enough for a p99 of its own
			idle := s.p99()
			for _, deed := range []struct {
				name string
				do   func(*siege)
			}{
				{"escapes", (*siege).escapes}, {"signals", (*siege).signals}, {"spying", (*siege).spies}, {"swaps", (*siege).swaps},
				{"odd files", (*siege).oddFiles}, {"output", (*siege).floods}, {"bombs", (*siege).bombs}, {"deaths", (*siege).dies},
			} {
				began := time.Now()
				deed.do(s)
				t.Logf("%s: %v; the sandbox beside answers within %v (idle %v)", deed.name, time.Since(began).Round(time.Millisecond), s.p99(), idle)
			}
			cancel()
			asking.Wait()
			s.unharmed()
		})
	}
}

// ofItsKernel are what a sandbox with a kernel of its own has of that.
var ofItsKernel = []string{"syslog", "keyctl"}

// escapes: nothing is got of what nobody may have.
func (s *siege) escapes() {
	name := "controld-" + uuid.NewString()
	abstract, err := net.Listen("unix", "@"+name)
	if err != nil {
		s.Fatal(err)
	}
	defer abstract.Close()
	loopback, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	defer loopback.Close()
	r, err := s.foe.Exec(s.Context(), "/workspace/foe", sandbox.ExecOptions{Timeout: daemonTimeout, Env: map[string]string{foeEnv: name + " " + loopback.Addr().String()}})
	if err != nil || r.ExitCode != 0 {
		s.Fatalf("%d, %.2000s, %v", r.ExitCode, r.Stderr, err)
	}
	text, tried := strings.CutPrefix(string(r.Stdout), foeTried+"\n")
	if !tried {
		s.Fatalf("the foe tried nothing: %.2000s", r.Stderr)
	}
	for got := range strings.Lines(text) {
		if !s.ownKernel || !slices.Contains(ofItsKernel, strings.TrimSpace(got)) {
			s.Errorf("the foe could: %s", got)
		}
	}
	s.recovers()
}

// signals: process 1 is not ended from inside, whatever all others are.
func (s *siege) signals() {
	before := s.specs()
	for _, command := range []string{"for n in $(seq 1 64); do kill -$n 1; done 2>/dev/null", "kill -9 -1", "kill -9 -1"} {
		_, err := s.foe.Exec(s.Context(), command, sandbox.ExecOptions{Timeout: 5 * time.Second})
		if err != nil {
			s.Errorf("%s: %v", command, err)
		}
		s.recovers()
	}
	if after := s.specs(); !reflect.DeepEqual(before, after) {
		s.Errorf("a sandbox was ended from inside: %+v, %+v before", after, before)
	}
}

// spies: no canary is found by looking everywhere for it.
func (s *siege) spies() {
	secrets := []string{s.canary}
	for _, spec := range s.specs() {
		secrets = append(secrets, spec.Secret)
	}
	const bait = "bait, which is found"
	if _, err := s.foe.WriteFile(s.Context(), "bait", []byte(bait), sandbox.WriteOptions{}); err != nil {
		s.Fatal(err)
	}
	secrets = append(secrets, bait)
	search := "timeout 10 grep -la"
	for _, secret := range secrets {
		// The first letter in brackets, so that the search does not find itself.
		search += " -e '[" + secret[:1] + "]" + secret[1:] + "'"
	}
	r := s.does("find / /dev/shm \\( -path /proc -o -path /sys -o -path /usr -o -path /dev \\) -prune -o -type f -size -2000k -print0 2>/dev/null | xargs -0 "+search+" 2>/dev/null; "+
		"cd /proc; "+search+" [0-9]*/environ [0-9]*/cmdline [0-9]*/maps [0-9]*/mountinfo [0-9]*/status net/unix 2>/dev/null", daemonTimeout)
	if string(r.Stdout) != "/workspace/bait\n" || r.Reason != sandbox.ReasonExited {
		s.Errorf("secrets are found in %s, %s", r.Stdout, r.Reason)
	}
}

// specs are what the host has written down of its sandboxes.
func (s *siege) specs() (all []sandboxhost.Spec) {
	s.Helper()
	dirs, err := filepath.Glob(filepath.Join(s.state, "run", "*"))
	if err != nil || len(dirs) == 0 {
		s.Fatalf("%v, %v", dirs, err)
	}
	for _, dir := range dirs {
		spec, err := readSpec(dir)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, spec)
	}
	return all
}

// swaps: while a directory turns into a link out of the workspace and back, what
// the host is asked to read and write there never leads out.
func (s *siege) swaps() {
	const rounds = 500 // of four calls
	s.does("mkdir -p d; ln -sfn "+s.outside+" l; echo own >d/f", daemonTimeout)
	var swapper sync.WaitGroup
	swapper.Go(func() {
		r, err := s.foe.Exec(s.Context(), "./foe", sandbox.ExecOptions{Env: map[string]string{foeEnv: foeSwaps}})
		s.Logf("swaps: %s%s, %v", r.Stdout, r.Stderr, err)
	})
	led := map[string]int{}
	count := func(err error) { led[string(sandbox.KindOf(err))]++ }
	for range rounds {
		text, err := s.foe.ReadFile(s.Context(), "d/f", sandbox.ReadOptions{})
		count(err)
		if strings.Contains(text, s.canary) {
			s.Fatal("a read led out of the workspace")
		}
		_, err = s.foe.WriteFile(s.Context(), "d/f", []byte("own"), sandbox.WriteOptions{})
		count(err)
		_, err = s.foe.WriteFileStream(s.Context(), "d/g", strings.NewReader("own"), sandbox.WriteOptions{})
		count(err)
		err = s.foe.Rm(s.Context(), "d/g", sandbox.RmOptions{Force: true})
		count(err)
	}
	if _, err := s.foe.WriteFile(s.Context(), "stop", nil, sandbox.WriteOptions{}); err != nil {
		s.Fatal(err)
	}
	swapper.Wait()
	s.Logf("swaps: what became of %d calls: %v", 4*rounds, led)
	s.outsideIsWhole()
}

// outsideIsWhole wants what lies outside to be as it was.
func (s *siege) outsideIsWhole() {
	s.Helper()
	names, err := os.ReadDir(s.outside)
	if err != nil || len(names) != 1 {
		s.Errorf("outside there are %v, %v", names, err)
	}
	if text, err := os.ReadFile(filepath.Join(s.outside, "f")); err != nil || string(text) != s.canary {
		s.Errorf("outside: %q, %v", text, err)
	}
}

// oddFiles: a pipe keeps nobody waiting, and paths lead where they lead inside.
func (s *siege) oddFiles() {
	s.does("rm -rf *; mkfifo pipe; ln -s "+s.outside+"/f out; ln -s /etc/shadow shadow; ln -s loop loop; ln -s /proc/1/environ environ; ln -s /proc/1/root root", daemonTimeout)
	ctx, cancel := context.WithTimeout(s.Context(), daemonTimeout)
	defer cancel()
	for _, path := range []string{"pipe", "out", "shadow", "loop", "environ", "root" + s.outside + "/f", "../../../../../.." + s.outside + "/f",
		"/proc/self/root" + s.outside + "/f", s.state + "/f", "/etc/shadow"} {
		text, err := s.foe.ReadFile(ctx, path, sandbox.ReadOptions{})
		if err == nil || ctx.Err() != nil {
			s.Errorf("%s: %q, %v", path, text, err)
		}
		if _, err := s.foe.WriteFile(ctx, path, []byte("x"), sandbox.WriteOptions{IfMatch: "x"}); err == nil || ctx.Err() != nil {
			s.Errorf("%s was written: %v", path, err)
		}
	}
	s.outsideIsWhole()
}

// floods: of endless output a bounded part is kept.
func (s *siege) floods() {
	r, err := s.foe.Exec(s.Context(), "timeout 1 yes; timeout 1 yes >&2", sandbox.ExecOptions{MaxOutputBytes: sandbox.Some[int64](1 << 20)})
	if err != nil || len(r.Stdout) > 1<<20 || len(r.Stderr) > 1<<20 || r.StdoutOmitted == 0 || r.StderrOmitted == 0 {
		s.Errorf("%d and %d bytes are kept, %v", len(r.Stdout), len(r.Stderr), err)
	}
}

// bombs are thrown where the driver bounds a sandbox, and all is below a cgroup
// of the test's own.
func (s *siege) bombs() {
	if !s.bounded {
		s.Log("bombs: not thrown, the driver bounds nothing")
		return
	}
	s.does("f() { f | f & }; f; sleep 1", 2*time.Second)
	s.clears()
	s.recovers()
	if r := s.does("dd if=/dev/zero of=/dev/null bs=256M count=1", daemonTimeout); r.Reason != sandbox.ReasonOOMKilled {
		s.Errorf("a memory bomb: %+v", r)
	}
	s.recovers()
}

// clears ends what a bomb has left: it may go on for as long as it finds room.
func (s *siege) clears() {
	s.Helper()
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(10 * time.Millisecond) {
		r, err := s.foe.Exec(s.Context(), "kill -9 -1; true", sandbox.ExecOptions{Timeout: 5 * time.Second})
		if err == nil && r.ExitCode == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("what a bomb has left does not end: %s, exit code %d, %v", r.Reason, r.ExitCode, err)
		}
	}
}

// dies: the foe's sandbox ends, by a hand from outside and by a memory file
// system that it fills, and says why.
func (s *siege) dies() {
	ended := s.endsUnder("sleep 1000", func() { s.killFoe() })
	if ended != sandbox.ReasonSandboxRestarted {
		s.Errorf("killed: %q", ended)
	}
	s.foe = s.backend("foe")
	s.recovers()
	if !s.bounded {
		return
	}
	// What lies in memory outlives the command that is killed for it, until
	// somebody removes it.
	fill := "while :; do dd if=/dev/zero of=/dev/shm/full bs=1M 2>/dev/null; sleep 0.01; done"
	s.Logf("deaths: with /dev/shm full: %q", s.endsUnder(fill, func() {}))
	s.foe = s.backend("foe")
	if err := s.foe.Rm(s.Context(), "/dev/shm/full", sandbox.RmOptions{Force: true}); err != nil {
		s.Errorf("what fills the memory cannot be removed: %v", err)
	}
	s.recovers()
}

// endsUnder returns the reason for which a command's sandbox ended, or what the
// command came to.
func (s *siege) endsUnder(command string, end func()) string {
	s.Helper()
	results := make(chan error, 1)
	s.does("rm -f begun", daemonTimeout)
	go func() {
		_, err := s.foe.Exec(s.Context(), "touch begun; "+command, sandbox.ExecOptions{Timeout: 10 * time.Second})
		results <- err
	}()
	waitFor(s.T, filepath.Join(s.state, "sandboxes", "foe", "default", "begun"))
	end()
	err := <-results
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return e.Reason
}

// killFoe kills the processes of the foe's sandbox that name its secret's hash.
func (s *siege) killFoe() {
	s.Helper()
	for _, spec := range s.specs() {
		if spec.Tenant != "foe" {
			continue
		}
		for _, word := range []string{launch.Mark(spec.Secret), spec.ID} {
			for _, pid := range pidsWith(word) {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// pidsWith are the processes of the machine whose command lines hold a word.
func pidsWith(word string) (all []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), word) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			all = append(all, pid)
		}
	}
	return all
}

// unharmed wants the sandbox beside to be what it was, and nothing to be left
// when the host has ended.
func (s *siege) unharmed() {
	s.Helper()
	info, err := s.beside.Info(s.Context())
	if err != nil || info.Epoch != s.epoch {
		s.Errorf("beside: %+v, %v", info, err)
	}
	if text, err := s.beside.ReadFile(s.Context(), "f", sandbox.ReadOptions{}); err != nil || text != s.canary {
		s.Errorf("beside: %q, %v", text, err)
	}
	specs := s.specs()
	if err := s.host.Close(); err != nil {
		s.Error(err)
	}
	for _, spec := range specs {
		for _, word := range []string{spec.ID, launch.Mark(spec.Secret), s.canary} {
			for deadline := time.Now().Add(5 * time.Second); len(withWord(word)) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) { // what an engine had beside a container goes on for a moment
					s.Fatalf("left: %v", withWord(word))
				}
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.state, "run", "*")); len(left) > 0 {
		s.Errorf("left in the state directory: %v", left)
	}
}

// readSpec reads what the host has written down of an instance.
func readSpec(dir string) (sandboxhost.Spec, error) {
	var spec sandboxhost.Spec
	text, err := os.ReadFile(filepath.Join(dir, "spec.json"))
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	return spec, err
}
