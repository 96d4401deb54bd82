//go:build linux

package proctree

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newSlotMarks(t *testing.T) *marks {
	t.Helper()
	m := newMarks(t)
	if !m.tags {
		t.Skip("no tags here")
	}
	m.slots = newSlots(m.base)
	return m
}

func softLimit(t *testing.T) uint64 {
	t.Helper()
	limit, err := limitOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return limit.Cur
}

// TestBirthsGoTogether: with slots one birth does not wait for another.
func TestBirthsGoTogether(t *testing.T) {
	m, own := newSlotMarks(t), softLimit(t)
	var births, all sync.WaitGroup
	births.Add(2)
	for range 2 {
		all.Go(func() {
			m.next().birth(func() (*os.Process, error) {
				births.Done()
				births.Wait()
				if soft := softLimit(t); soft != m.base {
					t.Errorf("%x is born, want %x", soft, m.base)
				}
				return nil, os.ErrInvalid
			})
		})
	}
	all.Wait()
	if now := softLimit(t); now != own {
		t.Errorf("this process kept %x", now)
	}
}

// TestBirthsTakeTurns: births of different marks exclude one another, and who
// comes behind a waiting one waits for it.
func TestBirthsTakeTurns(t *testing.T) {
	b := newBearing()
	a, other := newMarks(t).next().value, newMarks(t).next().value
	waits := func(n int) func() bool {
		return func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.waiting == n }
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	inside := map[uint64]int{}
	bear := func(value uint64) {
		b.bear(value)
		mu.Lock()
		inside[value]++
		if inside[a] > 0 && inside[other] > 0 || softLimit(t) != value {
			t.Errorf("%v, %x", inside, softLimit(t))
		}
		mu.Unlock()
	}
	drop := func(value uint64) {
		mu.Lock()
		inside[value]--
		mu.Unlock()
		b.drop()
	}
	bear(a)
	bear(a) // at once: nobody waits
	all.Go(func() { bear(other); drop(other) })
	eventually(t, "the other waits", waits(1))
	all.Go(func() { bear(a); drop(a) })
	eventually(t, "the latecomer waits behind it", waits(2))
	drop(a)
	if !waits(2)() {
		t.Error("went ahead of a birth that was not over")
	}
	drop(a)
	all.Wait()
	for range 100 {
		all.Go(func() { bear(a); drop(a) })
		all.Go(func() { bear(other); drop(other) })
	}
	all.Wait()
}

// TestSlotTellsTrees: what is born at the same time, and has no mark of its
// own yet, is known by its slot.
func TestSlotTellsTrees(t *testing.T) {
	m := newSlotMarks(t)
	a, b := m.next(), m.next()
	birth := func(x mark, env ...string) (cmd *exec.Cmd) {
		tagged(x.slot, func() (*os.Process, error) {
			cmd = bornIn(t, mark{marks: m, value: m.base}, env)
			return cmd.Process, nil
		})
		return cmd
	}
	first, second := birth(a, "A=b"), birth(b)
	stranger := bornIn(t, mark{marks: m, value: m.base}, nil)
	if !a.on(first.Process.Pid) || a.on(second.Process.Pid) || a.on(stranger.Process.Pid) {
		t.Error("a takes another's")
	}
	if !newHunt(a, true).empty(time.Now().Add(patience)) || lives(first.Process.Pid) || !lives(second.Process.Pid) {
		t.Error("a was killed alone?")
	}
	if !newHunt(m.all(), true).empty(time.Now().Add(patience)) || lives(second.Process.Pid) {
		t.Error("survived the forest")
	}
	if !lives(stranger.Process.Pid) {
		t.Error("killed a stranger")
	}
}

// TestBornBeforeTheMark: what the first process starts before it is marked
// itself, without an environment and in a session of its own, is the tree's.
func TestBornBeforeTheMark(t *testing.T) {
	m := newSlotMarks(t)
	tree := m.next()
	var pid int
	p, err := tree.birth(func() (*os.Process, error) {
		cmd := exec.Command("/bin/sh", "-c", "env -i A=b setsid sleep 300 >/dev/null & echo $!; wait")
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { out.Close() })
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return nil, err
		}
		pid, err = strconv.Atoi(strings.TrimSpace(line))
		return cmd.Process, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if limit, err := limitOf(pid); err != nil || limit.Cur != m.base || limit.Max == tree.value {
		t.Errorf("%+v, %v: not born before the mark", limit, err)
	}
	if newHunt(m.next(), true).look(); !lives(pid) || !lives(p.Pid) {
		t.Error("another tree's kill took it")
	}
	newHunt(tree, true).look()
	eventually(t, "both are killed", func() bool { return !lives(pid) && !lives(p.Pid) })
	p.Wait()
}

// TestSlotsAreNotShared: a slot that was given back is used again only when
// nobody has it, and there is an end to slots.
func TestSlotsAreNotShared(t *testing.T) {
	m := newSlotMarks(t)
	seen := make(map[int]bool)
	for range maxSlot {
		n := m.slots.take()
		if n < 1 || n > maxSlot || seen[n] {
			t.Fatalf("slot %d", n)
		}
		seen[n] = true
	}
	if n := m.slots.take(); n != 0 {
		t.Fatalf("slot %d of %d", n, maxSlot)
	}
	if x := m.next(); x.slot != 0 || x.value&numbers == 0 {
		t.Errorf("%+v", x)
	}
	var left *exec.Cmd
	tagged(7, func() (*os.Process, error) {
		left = bornIn(t, mark{marks: m, value: m.base}, nil)
		return left.Process, nil
	})
	m.slots.give(7)
	mark{marks: m, slot: 8}.release()
	if n := m.slots.take(); n != 8 {
		t.Errorf("slot %d", n)
	}
	if n := m.slots.take(); n != 0 {
		t.Errorf("slot %d", n)
	}
	left.Process.Kill()
	left.Wait()
	if n := m.slots.take(); n != 7 {
		t.Errorf("slot %d", n)
	}
}

// TestTagKeepsThePersonality: but for the tag it is what it was, on this
// thread afterwards, too.
func TestTagKeepsThePersonality(t *testing.T) {
	if !tagsWork() {
		t.Skip("no tags here")
	}
	personality := func() uintptr {
		is, _, _ := unix.RawSyscall(unix.SYS_PERSONALITY, askPersonality, 0, 0)
		return is
	}
	tagged(maxSlot, func() (*os.Process, error) { // as inside another's tree
		tagged(1, func() (*os.Process, error) {
			if got := personality(); int(got>>slotBit&maxSlot) != 1 {
				t.Errorf("slot 1 inside another: %x", got)
			}
			return nil, nil
		})
		return nil, nil
	})
	before := personality()
	for _, slot := range []int{0, 1, maxSlot} {
		tagged(slot, func() (*os.Process, error) {
			if got := personality(); got&^tagBits != before&^tagBits || int(got>>slotBit&maxSlot) != slot || got&tag == 0 {
				t.Errorf("slot %d: %x", slot, got)
			}
			return nil, nil
		})
		if got := personality(); got != before {
			t.Errorf("left %x of slot %d", got, slot)
		}
	}
}

// TestSlotsComeBack: a tree that is over has given its slot back.
func TestSlotsComeBack(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		if f.marks == nil || f.marks.slots == nil {
			t.Skip("births come one at a time")
		}
		for len(f.marks.slots.clean) > 1 {
			f.marks.slots.take()
		}
		for range 3 {
			tree, _ := start(t, f, ":")
			<-tree.Exited()
			if tree.group.(*cgroup).mark.slot == 0 {
				t.Error("no slot is left")
			}
			if !tree.End(0, patience) {
				t.Error("lives")
			}
			tree.Release()
		}
	})
}
