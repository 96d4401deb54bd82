//go:build linux

package local

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/controld/controld/sandbox"
)

// victimEnv makes the test program a sandbox's process that is to be killed.
const victimEnv = "LOCAL_TEST_VICTIM"

// victim starts what would be left behind, says so and waits for its end.
func victim(dir string) {
	s := must(New(Options{
		DefaultCwd: filepath.Join(dir, "cwd"),
		StateDir:   filepath.Join(dir, "state"),
		Cgroups:    Cgroups(os.Getenv("LOCAL_TEST_CGROUPS")),
	}))
	s.named.Store(true)
	sink := must(s.OpenWrite(bg(), "upload", sandbox.WriteOptions{}))
	must(sink.Writer().Write([]byte("half")))
	put := "echo $$ >>pids; (setsid sh -c 'echo $$ >>pids; exec sleep 300') & sleep 300 & echo $! >>pids; " +
		"env -i setsid -f sh -c 'echo $$ >>pids; exec sleep 300'; (env -i setsid -f sh -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 300; done' &); trap '' TERM"
	must(s.Exec(bg(), put+"; while [ $(wc -l <pids) -lt 5 ]; do sleep 0.01; done", sandbox.ExecOptions{}))
	fmt.Println("ready")
	select {}
}

func TestSweep(t *testing.T) {
	for _, c := range []Cgroups{CgroupsAuto, CgroupsOff} {
		t.Run(string(c), func(t *testing.T) { testSweep(t, c) })
	}
}

func testSweep(t *testing.T, c Cgroups) {
	dir := t.TempDir()
	state, cwd := filepath.Join(dir, "state"), filepath.Join(dir, "cwd")
	cmd := exec.Command(must(os.Executable()))
	cmd.Env = append(os.Environ(), victimEnv+"="+dir, "LOCAL_TEST_CGROUPS="+string(c))
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	// While its process lives, nothing is swept.
	put(t, filepath.Join(cwd, ".controld-mine"), "a name like a temp's that nobody recorded")
	if err := Sweep(state); err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(get(t, filepath.Join(cwd, "pids")))
	for _, pid := range pids[1:] {
		if !running(pid) {
			t.Errorf("%s was killed while its sandbox lived", pid)
		}
	}
	if n := temps(t, cwd); n != 2 {
		t.Errorf("%d temps, want that of the upload and the stranger", n)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := Sweep(state); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids[1:] {
		if running(pid) {
			t.Errorf("%s survived", pid)
		}
	}
	if n := temps(t, cwd); n != 1 {
		t.Errorf("%d temps left, want the stranger alone", n)
	}
	if left := must(os.ReadDir(state)); len(left) > 0 {
		t.Errorf("left in the state directory: %v", left)
	}
	if err := Sweep(filepath.Join(dir, "no such directory")); err != nil {
		t.Error(err)
	}
}

func temps(t *testing.T, dir string) (n int) {
	for _, e := range must(os.ReadDir(dir)) {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			n++
		}
	}
	return n
}

// running tells whether a process is there and no zombie.
func running(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// TestNothingIsWrittenDown: without a state directory a sandbox makes no file
// but those that it is told to.
func TestNothingIsWrittenDown(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	s := must(New(Options{DefaultCwd: dir, Cgroups: CgroupsOff}))
	s.named.Store(true)
	must(s.WriteFile(bg(), "f", []byte("x"), sandbox.WriteOptions{}))
	sh(t, s, "true", sandbox.ExecOptions{})
	if names := must(os.ReadDir(tmp)); len(names) > 0 {
		t.Errorf("it has made %v", names)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := temps(t, dir); n != 0 {
		t.Errorf("%d temps are left", n)
	}
}
