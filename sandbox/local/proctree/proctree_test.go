//go:build linux

package proctree

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == keepWord {
		os.Exit(Keep())
	}
	goleak.VerifyTestMain(m)
}

// keepWord makes the test program a keeper.
const keepWord = "keep"

func newKeeper() *Keeper { return NewKeeper("/proc/self/exe", os.Args[0], keepWord) }

// forests runs a test with cgroups, where they work, and with walking, without
// a keeper and with one.
func forests(t *testing.T, test func(t *testing.T, f *Forest)) {
	for _, mode := range []string{"cgroups", "walk", "walk with keeper"} {
		t.Run(mode, func(t *testing.T) {
			before := countFDs(t)
			var mu sync.Mutex
			var made []Remains
			walk := mode != "cgroups"
			var keeper *Keeper
			if mode == "walk with keeper" {
				keeper = newKeeper()
				defer keeper.Close()
			}
			f, err := Open(Options{Walk: walk, Keeper: keeper, Name: CgroupPrefix + "test-" + strconv.Itoa(os.Getpid()), Record: func(r Remains) error {
				mu.Lock()
				defer mu.Unlock()
				made = append(made, r)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if walk && f.Kind() != KindSubreaper {
				t.Error(f.Kind())
			}
			t.Run("", func(t *testing.T) { test(t, f) }) // with its clean-up
			if !f.Close(patience) {
				t.Error("something is left")
			}
			if keeper != nil {
				keeper.Close()
			}
			for _, r := range made {
				if _, err := os.Stat(r.Cgroup); r.Cgroup != "" && err == nil {
					t.Errorf("%s is left", r.Cgroup)
				}
				if _, ok := readProc(r.PID); r.PID != 0 && ok {
					t.Errorf("process %d is left", r.PID)
				}
			}
			if after := countFDs(t); after > before+4 { // the poller's and the signals' own
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func countFDs(t *testing.T) int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// start starts a shell that writes to the returned file.
func start(t *testing.T, f *Forest, command string) (*Tree, *os.File) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
	tree, err := f.Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", command}, Env: env, Dir: t.TempDir(), Files: []*os.File{null, out, out}})
	if err != nil {
		t.Fatal(err)
	}
	return tree, out
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// printed waits for n numbers and returns them.
func printed(t *testing.T, out *os.File, n int) (pids []int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " numbers"), func() bool {
		b, _ := io.ReadAll(io.NewSectionReader(out, 0, 1<<20))
		pids = nil
		for _, field := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(field)
			pids = append(pids, pid)
		}
		return len(pids) == n
	})
	return pids
}

func lives(pid int) bool {
	p, ok := readProc(pid)
	return ok && p.live()
}

func TestState(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		for range 20 { // more trees than one, so that cgroups are used again
			for command, code := range map[string]int{"exit 3": 3, "true": 0, "kill -9 $$": -1} {
				tree, _ := start(t, f, command)
				<-tree.Exited()
				status, err := tree.State()
				if err != nil || status.ExitStatus() != code || tree.Alive() || tree.OOMKills() != 0 {
					t.Errorf("%s: %v %v", command, status, err)
				}
				tree.Release()
				tree.Release()
			}
		}
	})
}

func TestUseAfterKill(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		for range 10 {
			tree, out := start(t, f, "echo $$; exec sleep 300")
			printed(t, out, 1)
			if !tree.End(0, patience) {
				t.Fatal("not killed")
			}
			tree.Release()
			tree, _ = start(t, f, "exit 7")
			<-tree.Exited()
			if status, err := tree.State(); err != nil || status.ExitStatus() != 7 {
				t.Fatal(status, err)
			}
			eventually(t, "empty", func() bool { return !tree.Alive() })
			tree.Release()
		}
	})
}

func TestEnd(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		for name, c := range map[string]struct {
			command string
			pids    int
			grace   time.Duration
		}{
			"polite":  {"trap 'exit 0' TERM; echo $$; sh -c 'echo $$; exec sleep 300' & wait", 2, patience},
			"deaf":    {"trap '' TERM; echo $$; while :; do sleep 300; done", 1, 50 * time.Millisecond},
			"orphans": {"for i in 1 2 3; do (setsid sh -c 'echo $$; exec sleep 300' &) ; done; echo $$; wait; sleep 300", 4, 50 * time.Millisecond},
			"breeder": {"trap '' TERM; echo $$; for i in 1 2 3 4; do sh -c 'trap \"\" TERM; while :; do sleep 0.001; (sleep 0.02 &) ; done' & done; wait; sleep 300", 1, time.Millisecond},
		} {
			tree, out := start(t, f, c.command)
			pids := printed(t, out, c.pids)
			begun := time.Now()
			if !tree.End(c.grace, patience) {
				t.Errorf("%s: not empty", name)
			}
			for _, pid := range pids {
				if lives(pid) {
					t.Errorf("%s: %d survived", name, pid)
				}
			}
			if c.grace == patience && time.Since(begun) > patience/2 {
				t.Errorf("%s: the grace was waited out", name)
			}
			tree.Release()
		}
	})
}

func TestOneTreeIsNotAnother(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		var stay []int
		for range 3 {
			tree, out := start(t, f, "(setsid sh -c 'echo $$; exec sleep 300' &); echo $$; sleep 300")
			stay = append(stay, printed(t, out, 2)...)
			defer tree.Release()
			defer tree.End(0, patience)
		}
		own := exec.Command("sleep", "300")
		own.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := own.Start(); err != nil {
			t.Fatal(err)
		}
		stay = append(stay, own.Process.Pid)
		defer own.Wait()
		defer own.Process.Kill()
		for range 5 {
			tree, out := start(t, f, "(setsid sh -c 'echo $$; exec sleep 300' &); echo $$; sleep 300")
			printed(t, out, 2)
			tree.End(0, patience)
			tree.Release()
		}
		for _, pid := range stay {
			if !lives(pid) {
				t.Errorf("%d was killed with a tree that is not its own", pid)
			}
		}
	})
}

func TestStartFailures(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		for range 3 {
			if _, err := f.Start(Command{Path: "/no/such/file", Args: []string{"x"}, Dir: "/"}); !os.IsNotExist(err) {
				t.Error(err)
			}
		}
		tree, _ := start(t, f, "true")
		<-tree.Exited()
		tree.Release()
	})
}

func TestClosed(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		tree, out := start(t, f, "sleep 300 & echo $!; wait")
		pid := printed(t, out, 1)[0]
		if !f.Close(patience) || lives(pid) {
			t.Error("survived")
		}
		<-tree.Exited()
		if _, err := f.Start(Command{Path: "/bin/sh"}); err != ErrClosed {
			t.Error(err)
		}
		never := func() bool { return false }
		f.reaper = startReaper(never, never) // for the second Close
	})
}

// TestOrphansAreReaped: while their tree lives, soon after it started and
// later, and when it has ended.
func TestOrphansAreReaped(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		if !adoptsOrphans() {
			return // another process does
		}
		gone := func(pid int) func() bool {
			return func() bool { _, there := readProc(pid); return !there }
		}
		orphan := "(sh -c 'echo $$; exec sleep 0.1' &);"
		tree, out := start(t, f, orphan+" sleep 1; "+orphan+" sleep 300")
		eventually(t, "the first is reaped", gone(printed(t, out, 1)[0]))
		eventually(t, "the second is reaped", gone(printed(t, out, 2)[1]))
		tree.End(0, patience)
		tree.Release()
		tree, out = start(t, f, orphan)
		pid := printed(t, out, 1)[0]
		<-tree.Exited()
		eventually(t, "the third is reaped", gone(pid))
		tree.Release()
		eventually(t, "the reaper rests", func() bool { return !f.reaper.armed.Load() })
	})
}

// TestSweepLeavesStrangersAlone gives Sweep what another process has become.
func TestSweepLeavesStrangersAlone(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	p, _ := readProc(cmd.Process.Pid)
	Sweep(Remains{PID: p.pid, Start: p.start + 1, Env: "HOME=x"})
	Sweep(Remains{PID: 1 << 29, Start: 1, Env: "HOME=x"})
	Sweep(Remains{Cgroup: "/proc"})
	dir := filepath.Join(t.TempDir(), CgroupPrefix+"no-cgroup")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	Sweep(Remains{Cgroup: dir})
	if _, err := os.Stat(dir); err != nil || !lives(p.pid) {
		t.Error("swept a stranger")
	}
	Sweep(Remains{PID: p.pid, Start: p.start})
	eventually(t, "the recorded one is gone", func() bool { return !lives(p.pid) })
}

func TestParseStat(t *testing.T) {
	for line, want := range map[string]proc{
		"12 (sh) S 1 12 12 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0":        {key{12, 777}, 1, 12, 'S'},
		"12 (a) Z 9 (b) ) Z 3 4 5 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 888 0 0": {key{12, 888}, 3, 5, 'Z'},
	} {
		if got, ok := parseStat(12, []byte(line)); !ok || got != want {
			t.Errorf("%q: %+v %v", line, got, ok)
		}
	}
	for _, line := range []string{"", "12 (sh", "12 (sh) S 1", "12 (sh) S x 12 12 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777 0"} {
		if _, ok := parseStat(12, []byte(line)); ok {
			t.Errorf("%q was taken", line)
		}
	}
}

func TestBelowMount(t *testing.T) {
	mount := t.TempDir()
	for _, dir := range []string{"", "a"} {
		if err := os.MkdirAll(filepath.Join(mount, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mount, dir, "cgroup.procs"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		top, own, want string
		ok             bool
	}{
		{"/", "/", mount, true}, {"/", "/a", mount + "/a", true}, {"/x", "/x/a", mount + "/a", true}, {"/x", "/y", "", false}, {"/", "/missing", "", false},
	} {
		got, ok := belowMount(c.top, mount, c.own)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%+v: %q %v", c, got, ok)
		}
	}
	if got := unescape(`/a\040b\134c`); got != `/a b\c` {
		t.Error(got)
	}
}

// TestParentsFirst: whatever the order in which processes were found, and
// whatever changed hands meanwhile.
func TestParentsFirst(t *testing.T) {
	parents := map[int]int{2: 1, 3: 2, 4: 3, 5: 2, 6: 5, 7: 8, 8: 7, 9: 99}
	for range 100 {
		var keys []key
		for pid := range parents { // in any order
			keys = append(keys, key{pid: pid})
		}
		at := make(map[int]int)
		for i, k := range parentsFirst(keys, func(pid int) int { return parents[pid] }) {
			at[k.pid] = i + 1
		}
		if len(at) != len(parents) {
			t.Fatal(at)
		}
		for pid, parent := range parents {
			if ring := pid == 7 || pid == 8; !ring && at[parent] > at[pid] {
				t.Fatalf("%d comes after its child %d: %v", parent, pid, at)
			}
		}
	}
}

// TestSignalReachesParentsFirst: a shell that waits for one of its children
// runs its trap, and does not go on because that child ended first.
func TestSignalReachesParentsFirst(t *testing.T) {
	const children = 50
	// Each child says that it is past its fork: till then it has the trap.
	command := "trap 'echo 1; exit' TERM; for i in $(seq " + strconv.Itoa(children) + "); do " +
		"sh -c 'echo 0; exec sleep 300' & last=$!; done; wait $last; echo 2"
	forests(t, func(t *testing.T, f *Forest) {
		for range 5 {
			tree, out := start(t, f, command)
			printed(t, out, children)
			if !tree.End(patience, patience) {
				t.Error("something is left")
			}
			tree.Release()
			b, _ := io.ReadAll(io.NewSectionReader(out, 0, 1<<20))
			if text := string(b); !strings.HasSuffix(text, "1\n") || strings.Contains(text, "2") {
				t.Fatalf("%q", text)
			}
		}
	})
}

// TestReleaseRemovesCgroupsBelow: a command may divide its own cgroup.
func TestReleaseRemovesCgroupsBelow(t *testing.T) {
	forests(t, func(t *testing.T, f *Forest) {
		tree, out := start(t, f, "echo 1; read line <&2")
		printed(t, out, 1)
		g, ok := tree.group.(*cgroup)
		if !ok {
			return // walks have none
		}
		below := filepath.Join(g.dir, "below")
		if err := os.MkdirAll(filepath.Join(below, "more"), 0o755); err != nil {
			t.Fatal(err)
		}
		<-tree.Exited()
		tree.Release()
		if _, err := os.Stat(below); !os.IsNotExist(err) {
			t.Error("is left:", err)
		}
	})
}
