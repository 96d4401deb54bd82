package integration

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/faultfs"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/sandbox"
)

// onDisk starts a daemon whose sandboxes lie on a file system with faults, and
// writes 300 KiB to the file f there.
func onDisk(t *testing.T) (*place, *process, *faultfs.FS, *adapter.Sandbox) {
	t.Helper()
	p := newPlace(t)
	if err := os.MkdirAll(filepath.Join(p.cwd(), "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.cwd(), "f"), bytes.Repeat([]byte("x"), 300<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	fs, err := faultfs.Mount(filepath.Join(p.dir, "state", "sandboxes"))
	if errors.Is(err, faultfs.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fs.Close)
	p.starts = fs.Start
	d := p.startOnDisk(t)
	t.Cleanup(fs.Release)
	return p, d, fs, p.client(t, d)
}

func (p *place) startOnDisk(t *testing.T) *process {
	t.Helper()
	ready := filepath.Join(p.dir, "ready.json")
	os.Remove(ready)
	return p.run(t, exec.Command(binary(t), p.serve(ready, "--drain-timeout", "100ms")...), ready)
}

// TestDiskThatEndsEarly: P10.43. A file that has fewer bytes than it says is
// not the client's fault.
func TestDiskThatEndsEarly(t *testing.T) {
	_, _, fs, sb := onDisk(t)
	fs.Plan(faultfs.Fault{Call: faultfs.Getattr, Name: "f", Grown: 10})
	s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
	if err == nil { // the end may come before the beginning
		defer s.Close()
		_, err = io.ReadAll(s)
	}
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.KindTruncated || e.Expected.Value != 300<<10+10 {
		t.Errorf("%+v", err)
	}
}

// TestDirectoryThatHangs: a command that cannot enter its directory holds up no
// other command.
func TestDirectoryThatHangs(t *testing.T) {
	p, d, fs, sb := onDisk(t)
	fs.Plan(faultfs.Fault{Call: faultfs.Access, Name: "default", Stall: true})
	hung := make(chan error, 1)
	go func() {
		_, err := sb.Exec(t.Context(), ":", sandbox.ExecOptions{})
		hung <- err
	}()
	await(t, "the command to hang", func() bool { return fs.Waiting() > 0 })
	other, err := adapter.New(adapter.Options{Control: d.ready.Control[0], Token: p.secret, Sandbox: "beside"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	done := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), ":", sandbox.ExecOptions{})
		done <- err
	}()
	beside := false
	await(t, "another command's end", func() bool {
		select {
		case err := <-done:
			beside = err == nil
			return true
		case err := <-hung:
			t.Fatalf("the first command was done, %v", err)
		default:
		}
		return false
	})
	fs.Release()
	if err := <-hung; err != nil || !beside {
		t.Errorf("%v, beside %v", err, beside)
	}
}

// TestReadThatHangs: a transfer ends though its file does not come back.
func TestReadThatHangs(t *testing.T) {
	_, d, fs, sb := onDisk(t)
	fs.Plan(faultfs.Fault{Call: faultfs.Read, Name: "f", Stall: true})
	s, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the read to hang", func() bool { return fs.Waiting() > 0 })
	s.Close()
	await(t, "the end of the transfer", func() bool { return metric(t, d, "controld_transfers_inflight") == 0 })
	if fs.Waiting() == 0 {
		t.Error("nothing hung any more")
	}
}

// TestEndWhileACallHangs: a daemon that was told to end ends, whatever hangs,
// and the next one removes what it had to leave.
func TestEndWhileACallHangs(t *testing.T) {
	p, d, fs, sb := onDisk(t)
	fs.Plan(faultfs.Fault{Call: faultfs.Fsync, Stall: true})
	said := make(chan error, 1)
	go func() {
		_, err := sb.WriteFileStream(t.Context(), "f", bytes.NewReader([]byte("new")), sandbox.WriteOptions{Sync: true})
		said <- err
	}()
	await(t, "the sync to hang", func() bool { return fs.Waiting() > 0 })
	d.Process.Signal(syscall.SIGTERM)
	if err := <-said; err == nil {
		t.Error("a write that hangs is a success")
	}
	await(t, "the end of the daemon", func() bool { return check.Ended(d.Process.Pid) })
	if fs.Waiting() == 0 {
		t.Error("nothing hung any more")
	}
	fs.Release()
	if code := d.exitCode(t); code != 1 {
		t.Errorf("the daemon ended with %d", code)
	}
	p.startOnDisk(t)
	if err := check.Only(p.cwd(), "f", "d"); err != nil {
		t.Error(err)
	}
}

// TestTempThatCannotBeRemoved is the next daemon's to remove.
func TestTempThatCannotBeRemoved(t *testing.T) {
	p, d, fs, sb := onDisk(t)
	fs.Plan(faultfs.Fault{Call: faultfs.Rename, Errno: syscall.EIO}, faultfs.Fault{Call: faultfs.Unlink, Errno: syscall.EIO})
	if _, err := sb.WriteFile(t.Context(), "f", []byte("new"), sandbox.WriteOptions{}); err == nil {
		t.Error("a failed rename is a success")
	}
	fs.Release()
	if check.Only(p.cwd(), "f", "d") == nil {
		t.Fatal("it was removed")
	}
	d.Process.Signal(syscall.SIGTERM)
	d.exitCode(t)
	p.startOnDisk(t)
	if err := check.Only(p.cwd(), "f", "d"); err != nil {
		t.Error(err)
	}
}
