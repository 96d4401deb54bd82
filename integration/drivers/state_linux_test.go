package drivers

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// TestNothingIsLeftOfAWrite: a sandbox is killed in the middle of an upload, and
// when its next life answers nothing of that is there, where a file has a name
// before it is whole (gVisor), too. What the agent has written down for that is
// out of the workload's reach.
func TestNothingIsLeftOfAWrite(t *testing.T) {
	apart(t, func(t *testing.T, name string, d *duo) {
		for _, command := range []string{"ls /run/controld/state", "echo >/run/controld/state/f", "rmdir /run/controld/state", "cat /run/controld/state/*.journal"} {
			if got := d.says(t, "! "+command+" && echo refused"); !strings.Contains(got, "refused") {
				t.Errorf("%s: %s", command, got)
			}
		}
		r, w := io.Pipe()
		go d.WriteFileStream(t.Context(), "upload", r, sandbox.WriteOptions{})
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if name == "runsc" {
			waitFor(t, d.temp(t))
		}
		stranger := d.workspace(".controld-stranger")
		if err := os.WriteFile(stranger, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		left := d.noted(t)
		spec, err := readSpec(one(t, filepath.Join(d.state, "run", "*")))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{launch.Mark(spec.Secret), spec.ID} {
			for _, pid := range pidsWith(word) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		w.CloseWithError(io.ErrClosedPipe)
		d.again(t, spec)
		if names, _ := filepath.Glob(d.workspace(".controld-*")); len(names) != 1 || names[0] != stranger {
			t.Errorf("left are %v, not %s alone (written down was %s)", names, stranger, left)
		}
		if names, _ := filepath.Glob(filepath.Join(d.state, "agents", "acme", "default", "*.journal")); len(names) != 1 {
			t.Errorf("written down are %v", names)
		}
	})
}

// temp awaits the file of an upload that goes on.
func (d *duo) temp(t *testing.T) string {
	t.Helper()
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(5 * time.Millisecond) {
		if names, _ := filepath.Glob(d.workspace(".controld-*")); len(names) == 1 {
			return names[0]
		}
		if time.Now().After(deadline) {
			t.Fatal("an upload has no file with a name here")
		}
	}
}

// noted makes a file as a life before this one would have left it and written it
// down: most file systems give files no names before they are whole.
func (d *duo) noted(t *testing.T) string {
	t.Helper()
	left := d.workspace(".controld-left")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ino := d.says(t, "stat -c %i /workspace")
	line, err := json.Marshal(map[string]any{"dir": []byte("/workspace"), "temp": ".controld-left", "ino": json.RawMessage(ino)})
	if err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(d.state, "agents", "acme", "default", "dead.journal")
	if err := os.WriteFile(journal, append(line, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(journal, d.base, d.base); err != nil {
		t.Fatal(err)
	}
	return left
}

// again waits for the sandbox's next life.
func (d *duo) again(t *testing.T, before sandboxhost.Spec) {
	t.Helper()
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(5 * time.Millisecond) {
		b, err := d.host.Backend(t.Context(), "acme", "default")
		if err == nil {
			if info, err := b.Info(t.Context()); err == nil && info.Epoch != d.epoch {
				d.Backend = b
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no other life than %s: %v", before.ID, err)
		}
	}
}
