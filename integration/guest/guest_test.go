//go:build linux

package guest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/integration/guest"
)

// patience is ten times what the longest of these takes.
const patience = 6 * time.Minute

// haveKernel finds or downloads the kernel, once for all tests: where a mirror
// does not answer, none of them waits for it again.
var haveKernel = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	_, err := guest.FindKernel(ctx)
	return err
})

func newLab(t *testing.T) (context.Context, *guest.Lab) {
	t.Helper()
	if err := haveKernel(); errors.Is(err, guest.ErrMissing) {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	lab, err := guest.NewLab(ctx, t.TempDir())
	if errors.Is(err, guest.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ctx, lab
}

func boot(t *testing.T, ctx context.Context, lab *guest.Lab, disk, role string, args ...string) *guest.Machine {
	t.Helper()
	m, err := lab.Boot(ctx, disk, role, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Kill)
	return m
}

// said returns what the machine says next, of which the first word must be.
func said(t *testing.T, m *guest.Machine, word string) []string {
	t.Helper()
	words, err := m.Said()
	if err != nil {
		t.Fatal(err)
	}
	if words[0] != word {
		t.Fatalf("the machine said %v, want %s", words, word)
	}
	return words[1:]
}

// cut boots a machine that writes, pulls its plug when it has called so many
// writes durable, and returns the last version of each file that it called so
// and what the next machine finds of it: a version, or -1 for a torn file.
func cut(t *testing.T, ctx context.Context, lab *guest.Lab, how string, after int) (durable, found map[string]int) {
	t.Helper()
	disk, err := lab.NewDisk(ctx, fmt.Sprintf("disk-%s-%d", how, after), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	m := boot(t, ctx, lab, disk, "write", how)
	said(t, m, "ready")
	durable = map[string]int{}
	for range after {
		words := said(t, m, "durable")
		durable[words[0]] = number(t, words[1])
	}
	m.Kill()
	m = boot(t, ctx, lab, disk, "check")
	found = map[string]int{}
	for {
		words, err := m.Said()
		if err != nil {
			t.Fatal(err)
		}
		switch words[0] {
		case "holds":
			found[words[1]] = number(t, words[2])
		case "torn":
			found[words[1]] = -1
		case "done":
			return durable, found
		default:
			t.Fatalf("the machine said %v", words)
		}
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lost tells what a cut has cost: versions that were called durable.
func lost(durable, found map[string]int) (all []string) {
	for name, version := range durable {
		if found[name] < version {
			all = append(all, fmt.Sprintf("%s: version %d was durable, %d is there", name, version, found[name]))
		}
	}
	return all
}

// TestPowerCut: what a write with sync called durable is there after a power
// cut, and nothing is torn. The ways to write that leave out one of the two
// syncs show that the cuts do cost what was not synced.
func TestPowerCut(t *testing.T) {
	ctx, lab := newLab(t)
	for _, after := range []int{1, 4, 11} {
		durable, found := cut(t, ctx, lab, "stream", after)
		for _, l := range lost(durable, found) {
			t.Errorf("cut behind %d writes: %s", after, l)
		}
		for name, version := range found {
			if version < 0 {
				t.Errorf("cut behind %d writes: %s is torn", after, name)
			}
		}
		if len(found) > 4 {
			t.Errorf("cut behind %d writes: more files than were written: %v", after, found)
		}
		t.Logf("cut behind %d writes: durable %v, found %v", after, durable, found)
	}
	for _, how := range []string{"no-data-fsync", "no-dir-fsync"} {
		losses := 0
		for after := 5; after < 10 && losses == 0; after++ {
			durable, found := cut(t, ctx, lab, how, after)
			losses = len(lost(durable, found))
			t.Logf("%s, cut behind %d writes: durable %v, found %v", how, after, durable, found)
		}
		if losses == 0 {
			t.Errorf("%s lost nothing: the cuts are none", how)
		}
	}
}

// TestClockSteps: an hour more or less on the clock changes nothing.
func TestClockSteps(t *testing.T) {
	ctx, lab := newLab(t)
	m := boot(t, ctx, lab, "", "clock")
	for range 4 {
		said(t, m, "step")
	}
	said(t, m, "done")
}

// TestDeadPeers: P4.15. A peer that is cut off without a word is noticed by
// both sides, and what it held is free again: connections, idle and busy,
// commands, transfers.
func TestDeadPeers(t *testing.T) {
	ctx, lab := newLab(t)
	m := boot(t, ctx, lab, "", "dead-peer")
	for range 2 {
		words, err := m.Said()
		if err != nil {
			t.Fatal(err)
		}
		if words[0] == "failed" {
			t.Fatal(words)
		}
		took := time.Duration(number(t, words[2])) * time.Millisecond
		t.Logf("the %s noticed within %v: %s", words[0], took, words[1])
		if took > 60*time.Second { // 45 s are promised to a machine that is not emulated
			t.Errorf("the %s took %v", words[0], took)
		}
		if words[0] == "client" && words[1] != "connection_lost,connection_lost,connection_lost" {
			t.Errorf("the client's calls ended with %s", words[1])
		}
	}
	said(t, m, "done")
}

// TestLimitsOfCommands: P9.16. Memory and processes of a command are bounded by
// cgroups, in the root and where a service manager puts the daemon, and its
// neighbours do not notice.
func TestLimitsOfCommands(t *testing.T) {
	ctx, lab := newLab(t)
	for _, where := range []string{"root", "service"} {
		m := boot(t, ctx, lab, "", "limits", where)
		if tree := said(t, m, "tree"); tree[0] != "cgroup" {
			t.Errorf("%s: trees are held by %s", where, tree)
		}
		got := map[string]string{}
		for range 4 {
			words := said(t, m, "exec")
			got[words[0]] = strings.Join(words[1:], " ")
		}
		said(t, m, "done")
		t.Logf("%s: %v", where, got)
		for name, want := range map[string]string{
			"modest": "exited 0 - fine-",
			"memory": "oom_killed 137 KILL- -",
			"below":  "oom_killed 137 KILL- -",
		} {
			if got[name] != want {
				t.Errorf("%s: %s ended as %q, want %q", where, name, got[name], want)
			}
		}
		if forks := got["forks"]; !strings.HasPrefix(forks, "exited ") || strings.HasPrefix(forks, "exited 0") {
			t.Errorf("%s: a command that forks without end ended as %q", where, forks)
		}
	}
}

// TestKilledWithoutCgroups: P9.15. Where no cgroup holds them, because there are
// none or none are wanted, no command outlives the kill of its daemon. All do
// where there is no keeper.
func TestKilledWithoutCgroups(t *testing.T) {
	ctx, lab := newLab(t)
	for _, cgroups := range []string{"missing", "off"} {
		m := boot(t, ctx, lab, "", "kept", cgroups)
		for _, want := range []string{"keep subreaper 0", "alone subreaper 10"} {
			got := said(t, m, "left")
			t.Logf("cgroups %s: %s", cgroups, got)
			if last := len(got) - 1; strings.Join(got[:last], " ") != want {
				t.Errorf("cgroups %s: left %s, want %s", cgroups, got[:last], want)
			}
		}
		said(t, m, "done")
	}
}
