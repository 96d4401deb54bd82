package integration

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/controld/controld/sandbox"
)

// nobody is an ordinary user's id.
const nobody = 65534

// startAsNobody starts a daemon of an ordinary user's, with a canary in its
// environment. An ordinary user's tests start it as themselves.
func (p *place) startAsNobody(t *testing.T, canary string, args ...string) *process {
	t.Helper()
	ready := filepath.Join(p.dir, "ready.json")
	cmd := exec.Command(binary(t), p.serve(ready, args...)...)
	cmd.Env = append(os.Environ(), "SECRET="+canary)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		open(t, filepath.Dir(cmd.Path), filepath.Dir(p.dir))
		err := filepath.WalkDir(p.dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(path, nobody, nobody)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return p.run(t, cmd, ready)
}

// open lets everybody through directories of the tests'.
func open(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCase_C26: a command, though of the same user, sees nothing of what the
// daemon has in its environment, its memory and its descriptors. The control is
// a daemon that lets it.
func TestCase_C26(t *testing.T) {
	const canary = "canary-26"
	for _, traceable := range []bool{false, true} {
		p := newPlace(t)
		d := p.startAsNobody(t, canary, fmt.Sprintf("--traceable=%v", traceable))
		sb := p.client(t, d)
		for what, command := range map[string]string{
			"environment": "cat /proc/%d/environ /proc/[0-9]*/environ 2>/dev/null",
			"descriptors": "ls -l /proc/%d/fd && echo " + canary,
			"memory":      "dd if=/proc/%d/mem bs=1 count=0 && echo " + canary,
		} {
			res, err := sb.Exec(t.Context(), fmt.Sprintf(command, d.ready.PID), sandbox.ExecOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if seen := strings.Contains(string(res.Stdout), canary); seen != traceable {
				t.Errorf("traceable %v, %s: seen %v: %s", traceable, what, seen, res.Stderr)
			}
		}
		// Its own files by /proc/self/fd and its children are still the daemon's.
		if _, err := sb.WriteFile(t.Context(), "f", []byte("x"), sandbox.WriteOptions{Mode: sandbox.Some[uint32](0o600)}); err != nil {
			t.Error(err)
		}
	}
}
