//go:build linux

package proctree

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bornIn starts a child while this process bears a mark, as birth does, and
// leaves it there: the mark was not put on the child itself.
func bornIn(t *testing.T, m mark, env []string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "300")
	cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Setsid: true}
	ownLimit.bear(m.value)
	defer ownLimit.drop()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func bornTagged(t *testing.T, m mark, env []string) (cmd *exec.Cmd) {
	t.Helper()
	tagged(0, func() (*os.Process, error) {
		cmd = bornIn(t, m, env)
		return cmd.Process, nil
	})
	if !hasTag(cmd.Process.Pid) {
		t.Skip("no tags here")
	}
	return cmd
}

func newMarks(t *testing.T) *marks {
	t.Helper()
	m := openMarks("HOME=/of/the/forest")
	if m == nil {
		t.Skip("no marks here")
	}
	return m
}

// TestSweepFindsTheJustBorn: the process that started them died before it
// could do another thing.
func TestSweepFindsTheJustBorn(t *testing.T) {
	m := newMarks(t)
	if m.nested {
		t.Skip("inside a tree every soft mark counts")
	}
	shell := bornTagged(t, m.next(), []string{"A=b", "HOME=/of/the/forest"})
	odd := bornTagged(t, m.next(), []string{"A=b"})
	bare := bornTagged(t, m.next(), []string{})
	stranger := bornIn(t, m.next(), []string{"HOME=/of/another"})
	other := bornIn(t, openMarks("").next(), []string{})
	Sweep(Remains{Mark: m.base, Env: m.env})
	if lives(shell.Process.Pid) || lives(odd.Process.Pid) || lives(bare.Process.Pid) {
		t.Error("survived")
	}
	if !lives(stranger.Process.Pid) || !lives(other.Process.Pid) {
		t.Error("swept a stranger")
	}
	// A dead child of another part is not taken for an orphan either.
	stranger.Process.Kill()
	eventually(t, "it ends", func() bool { return !lives(stranger.Process.Pid) })
	if m.all().proves(stranger.Process.Pid) {
		t.Error("taken for an orphan")
	}
}

func TestSweepTakesNoMarkForAll(t *testing.T) {
	child := bornIn(t, mark{marks: newMarks(t), value: 5}, []string{})
	for _, base := range []uint64{1, numbers, numbers + 1, 1 << 40, 1<<62 | 1, unix.RLIM_INFINITY} {
		Sweep(Remains{Mark: base})
	}
	if !lives(child.Process.Pid) {
		t.Error("killed")
	}
}

func TestMarksDiffer(t *testing.T) {
	m, seen := newMarks(t), make(map[uint64]bool)
	m.last.Store(numbers - 1000)
	for range 2000 {
		v := m.next().value
		if seen[v] || v&^numbers != m.base || v == m.base {
			t.Fatalf("%x", v)
		}
		seen[v] = true
	}
	if other := newMarks(t); other.base == m.base {
		t.Error("two forests, one mark")
	}
}

func TestLimitOf(t *testing.T) {
	own, err := limitOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if parseLimit("unlimited") != unix.RLIM_INFINITY || parseLimit("4611686018427387905") != 1<<62+1 {
		t.Error("parseLimit")
	}
	if first, err := limitOf(1); err != nil || first.Cur == 0 {
		t.Error(first, err) // another user's, where the test is not root
	}
	if _, err := limitOf(1 << 29); err != unix.ESRCH {
		t.Error(err)
	}
	if now, err := limitOf(os.Getpid()); err != nil || now != own {
		t.Error(now, err)
	}
}

// TestNestedForest runs a forest's process with a mark of its own inside a
// tree: the outer forest still finds it.
func TestNestedForest(t *testing.T) {
	outer := newMarks(t)
	if outer.nested {
		t.Skip("is itself inside a tree")
	}
	child := bornIn(t, outer.next(), []string{})
	in := &marks{base: 1<<61 | 7<<numberBits, nested: true}
	limit := unix.Rlimit{Cur: in.next().value, Max: outer.next().value}
	if err := unix.Prlimit(child.Process.Pid, markLimit(), &limit, nil); err != nil {
		t.Fatal(err)
	}
	if !outer.all().on(child.Process.Pid) || !in.all().on(child.Process.Pid) {
		t.Error("lost")
	}
	if !newHunt(in.all(), true).empty(time.Now().Add(patience)) || lives(child.Process.Pid) {
		t.Error("survived")
	}
}
