//go:build linux

package proctree

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestEndIsBounded ends a tree whose first process is nowhere to be seen by
// its group.
func TestEndIsBounded(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may move processes between cgroups")
	}
	forests(t, func(t *testing.T, f *Forest) {
		c, ok := f.kind.(*cgroups)
		if !ok {
			return
		}
		tree, out := start(t, f, "echo $$ >"+filepath.Dir(c.dir)+"/cgroup.procs; echo $$; sleep 300")
		pid := printed(t, out, 1)[0]
		if tree.group.(*cgroup).populated() {
			t.Error("it has not moved")
		}
		if !tree.Alive() {
			t.Error("not alive")
		}
		begun := time.Now()
		if !tree.End(time.Millisecond, patience) || lives(pid) {
			t.Error("survived")
		}
		if took := time.Since(begun); took > patience/2 {
			t.Error(took)
		}
		tree.Release()
	})
}

// immortal is a group that cannot be killed until it is let go.
type immortal struct {
	group
	free chan struct{}
}

func (g *immortal) kill() {}

func (g *immortal) waitEmpty(patience time.Duration) bool {
	select {
	case <-g.free:
		g.group.kill()
		return g.group.waitEmpty(patience)
	case <-time.After(min(patience, 10*time.Millisecond)):
		return false
	}
}

// TestKillsOn: what could not be killed in time is killed later, without
// being asked again.
func TestKillsOn(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		started, out := start(t, f, "sleep 300 & echo $!; wait")
		pid := printed(t, out, 1)[0]
		g := &immortal{group: started.group, free: make(chan struct{})}
		tree := &Tree{forest: f, first: started.first, group: g, exited: started.exited, quit: make(chan struct{})}
		f.mu.Lock()
		f.trees[tree] = struct{}{}
		delete(f.trees, started)
		f.mu.Unlock()
		for range 3 {
			if tree.End(0, time.Millisecond) {
				t.Fatal("a tree that lives is called empty")
			}
		}
		if !lives(pid) {
			t.Fatal("it died")
		}
		close(g.free)
		eventually(t, "it is killed", func() bool { return !lives(pid) })
		tree.Release()
	})
}

// relayLooks bounds how long a relay is looked at, on a busy machine.
const relayLooks = 15 * time.Second

// TestRelayIsSeen: one process at a time that forks, starts a session and ends
// is never taken for nothing, however soon the dead are gone.
func TestRelayIsSeen(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("the relay needs perl")
	}
	forests(t, func(t *testing.T, f *Forest) {
		tree, out := start(t, f, `perl -e 'use POSIX; $| = 1; my $end = time + 600; while (time < $end) { my $p = fork; exit if $p; exit unless defined $p; setsid; print "1\n" unless $n++; select(undef, undef, undef, 0.001) }' & exit`)
		<-tree.Exited()
		printed(t, out, 1)
		g, ok := tree.group.(*walked)
		enough := time.Now().Add(relayLooks)
		for n := 0; ok && n < 3000 && time.Now().Before(enough); n++ {
			if newHunt(g.mark, false).empty(time.Now().Add(patience)) {
				t.Fatalf("look %d: nothing is there", n)
			}
		}
		if !tree.End(0, patience) {
			t.Error("survived")
		}
		tree.Release()
	})
}
