//go:build linux

package proctree

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
)

// openKept opens a forest that walks and has a keeper, until the test ends.
func openKept(t *testing.T) *Forest {
	t.Helper()
	keeper := newKeeper()
	f, err := Open(Options{Walk: true, Keeper: keeper})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !f.Close(patience) {
			t.Error("something is left")
		}
		keeper.Close()
	})
	return f
}

func (f *Forest) keeperPID(t *testing.T) int {
	t.Helper()
	pid := int(f.keeper.pid.Load())
	if pid == 0 || !lives(pid) {
		t.Fatal("there is no keeper")
	}
	return pid
}

// TestKeeperIsTheParent: it starts what is started, with nothing of its own,
// and no signal that can be handled ends it.
func TestKeeperIsTheParent(t *testing.T) {
	f := openKept(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP} {
		tree, out := start(t, f, "echo $PPID; read line <&2")
		pid := f.keeperPID(t)
		if got := printed(t, out, 1); got[0] != pid {
			t.Errorf("the parent is %d, want %d", got[0], pid)
		}
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
		<-tree.Exited()
		tree.Release()
	}
	if sid, err := unix.Getsid(f.keeperPID(t)); err != nil || sid != f.keeperPID(t) {
		t.Errorf("its session is %d, %v", sid, err)
	}
}

// TestKeeperIsKilled: the trees it started go on as before, with their status,
// and the next start has another.
func TestKeeperIsKilled(t *testing.T) {
	f := openKept(t)
	for range 3 {
		orphan, out := start(t, f, "(setsid sh -c 'echo $$; exec sleep 300' >&1 &); read line <&2")
		pids := printed(t, out, 1)
		<-orphan.Exited()
		waiting, out := start(t, f, "trap 'exit 7' TERM; echo $$; while :; do sleep 0.01; done")
		pids = append(pids, printed(t, out, 1)...)
		killer, _ := start(t, f, "kill -KILL $PPID; exit 3")
		old := f.keeper.link
		<-killer.Exited()
		if status, err := killer.State(); err != nil || status.ExitStatus() != 3 {
			t.Errorf("the killer's status: %v, %v", status, err)
		}
		killer.Release()
		<-old.gone
		if !orphan.Alive() || !waiting.Alive() || !lives(pids[0]) || !lives(pids[1]) {
			t.Error("a tree died with the keeper")
		}
		if !orphan.End(0, patience) || lives(pids[0]) {
			t.Error("the orphan survived")
		}
		if !waiting.End(patience, patience) || lives(pids[1]) {
			t.Error("the other survived")
		}
		if status, err := waiting.State(); err != nil || status.ExitStatus() != 7 {
			t.Errorf("the other's status: %v, %v", status, err)
		}
		orphan.Release()
		waiting.Release()
		tree, out := start(t, f, "echo $PPID")
		if got := printed(t, out, 1); got[0] != f.keeperPID(t) {
			t.Errorf("the parent is %d, want the next keeper", got[0])
		}
		<-tree.Exited()
		tree.Release()
	}
}

// TestStartIsLost: a keeper that dies over a start leaves nothing of it, and
// the start says that it does not know.
func TestStartIsLost(t *testing.T) {
	f := openKept(t)
	tree, _ := start(t, f, ":")
	<-tree.Exited()
	tree.Release()
	pid := f.keeperPID(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it stops", func() bool { p, _ := readProc(pid); return p.state == 'T' })
	l := f.keeper.link
	failed := make(chan error)
	go func() {
		_, err := f.Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", "exit 1"}, Dir: "/"})
		failed <- err
	}()
	eventually(t, "it is asked", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.kept) == 1 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
	// One whose process is not there any more has no status.
	k := &kept{link: l, exited: make(chan struct{}), key: key{1 << 29, 1}}
	if _, err := k.wait(); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
}

// TestNoKeeper: where the command line makes none, trees are held without.
func TestNoKeeper(t *testing.T) {
	for _, path := range []string{"/bin/true", "/no/such/file"} {
		k := NewKeeper(path, "keeper")
		f, err := Open(Options{Walk: true, Keeper: k})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			tree, _ := start(t, f, "exit 3")
			<-tree.Exited()
			if status, err := tree.State(); err != nil || status.ExitStatus() != 3 {
				t.Errorf("%s: %v, %v", path, status, err)
			}
			tree.Release()
		}
		if !f.Close(patience) {
			t.Error("something is left")
		}
		k.Close()
	}
}

// TestKeeperCloses: what a forest left is killed by the time Close returns,
// and nothing is started after it.
func TestKeeperCloses(t *testing.T) {
	f := openKept(t)
	tree, out := start(t, f, "trap '' TERM; (ulimit -w 5 2>/dev/null || ulimit -x 5; env -i setsid -f sh -c 'echo $$; exec sleep 300'); echo $$; while :; do sleep 300; done")
	pids := printed(t, out, 2)
	f.keeper.Close()
	for _, pid := range pids {
		if lives(pid) {
			t.Errorf("%d survived", pid)
		}
	}
	<-tree.Exited()
	tree.Release()
	if _, err := f.keeper.start(Command{Path: "/bin/sh", Dir: "/"}, mark{}); err != errNoKeeper {
		t.Error(err)
	}
	f.keeper.Close()
}

// TestUnmarkedOrphan: what has taken its mark off and has no parent any more
// falls with a tree that is told to end and was there before it. What is
// another forest's, or another tree's, does not.
func TestUnmarkedOrphan(t *testing.T) {
	const stay = "setsid -f sh -c 'echo $$; exec sleep 300'"
	f := openKept(t)
	if f.marks == nil {
		t.Skip("no marks here")
	}
	second, err := Open(Options{Walk: true, Keeper: f.keeper})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close(patience)
	one, out := start(t, f, stay+"; echo $$; sleep 300")
	pids := printed(t, out, 2)
	two, out := start(t, second, stay+"; echo $$; sleep 300")
	pids = append(pids, printed(t, out, 2)...)
	for _, grace := range []time.Duration{0, 50 * time.Millisecond} {
		tree, out := start(t, f, "(ulimit -w 5 2>/dev/null || ulimit -x 5; env -i "+stay+"); sleep 300")
		pid := printed(t, out, 1)[0]
		if !tree.End(grace, patience) || lives(pid) {
			t.Errorf("grace %v: survived", grace)
		}
		tree.Release()
	}
	for _, pid := range pids {
		if !lives(pid) {
			t.Errorf("%d was killed with a tree that is not its own", pid)
		}
	}
	for _, tree := range []*Tree{one, two} {
		if !tree.End(0, patience) {
			t.Error("survived")
		}
		tree.Release()
	}
}

func TestFrames(t *testing.T) {
	var both bytes.Buffer
	for _, words := range [][]string{{"ready"}, {"started", "1", "", "x\xff\n"}, {"", ""}, {strings.Repeat("x", 1<<20), "y"}} {
		both.Write(makeFrame(words...))
	}
	whole := bytes.Clone(both.Bytes())
	r := iotest.HalfReader(&both)
	for _, want := range []string{"ready", "started|1||x\xff\n", "|", strings.Repeat("x", 1<<20) + "|y"} {
		words, err := readFrame(r)
		if got := strings.Join(words, "|"); err != nil || got != want {
			t.Fatalf("%.40q, %v, want %.40q", got, err, want)
		}
	}
	if _, err := readFrame(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for _, cut := range []int{1, 3, 4, 8} {
		if words, err := readFrame(bytes.NewReader(whole[:cut])); err == nil {
			t.Errorf("%d bytes make %q", cut, words)
		}
	}
	if _, err := readFrame(strings.NewReader("\xff\xff\xff\xff")); err != errFrame {
		t.Errorf("too long: %v", err)
	}
}

// TestNotAReport: a keeper that says what makes no sense is none.
func TestNotAReport(t *testing.T) {
	for _, words := range [][]string{
		{""}, {"started"}, {"started", "1"}, {"started", "1", "x"}, {"started", "1", "0"}, {"started", "1", "2", "3"}, {"started", "2", "3"}, {"started", "1", "-1"},
		{"exited", "1", "0"}, {"other", "1", "0"},
	} {
		l := &link{kept: make(map[string]*kept)}
		if k := l.add(); k.id != "1" || l.handle(words) || len(l.kept) != 1 {
			t.Errorf("%q was taken", words)
		}
	}
	k := &keeping{}
	for _, words := range [][]string{{""}, {"keep"}, {"keep", "x"}, {"start", "1", "0", "/bin/sh", "1"}, {"start", "1", "0"}} {
		if k.handle(words, []int{0}) {
			t.Errorf("%q was taken", words)
		}
	}
	if k.handle([]string{"start", "1", "0", "/bin/sh", "1", "sh"}, nil) {
		t.Error("a start without a directory was taken")
	}
}

// TestStartsWithAKeeperFail as without.
func TestStartsWithAKeeperFail(t *testing.T) {
	f := openKept(t)
	for _, c := range []struct {
		command Command
		want    error
	}{
		{Command{Path: "/bin/sh", Args: []string{"sh"}, Dir: "/no/such/directory"}, os.ErrNotExist},
		{Command{Path: "/bin/sh", Args: []string{"sh"}, Dir: "/bin/sh"}, syscall.ENOTDIR},
		{Command{Path: "/etc", Args: []string{"x"}, Dir: "/"}, os.ErrPermission},
		{Command{Path: "/bin/sh", Args: []string{"a\x00b"}, Dir: "/"}, syscall.EINVAL},
		{Command{Path: "/bin/sh", Args: []string{"sh", strings.Repeat("x", 1<<20)}, Dir: "/"}, syscall.E2BIG},
	} {
		if _, err := f.Start(c.command); !errors.Is(err, c.want) {
			t.Errorf("%.40q: %v, want %v", c.command.Args, err, c.want)
		}
	}
	l := f.keeper.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) != 0 {
		t.Errorf("%d are waited for", len(l.kept))
	}
}
