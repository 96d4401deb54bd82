package faultfs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mountHere mounts over a directory with a file in it.
func mountHere(t *testing.T) (f *FS, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("x"), 40960), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Mount(dir)
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f, dir
}

// begin starts a script in the file system; end waits for it and tells what it
// said.
func begin(t *testing.T, f *FS, dir, script string) (end func() string) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "LC_ALL=C", "D="+dir)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := f.Start(cmd); err != nil {
		t.Fatal(err)
	}
	return func() string {
		cmd.Wait()
		return said.String()
	}
}

// TestPassesOn: without a fault everything is as below, and what is mounted is
// nobody else's.
func TestPassesOn(t *testing.T) {
	f, dir := mountHere(t)
	said := begin(t, f, dir, `cd $D && stat -f -c %T . && wc -c <f && echo new >g && sync g && mv g h && mkdir d && ln h d/l && rm f && ls -A . d`)()
	if want := "fuseblk\n40960\n.:\nd\nh\n\nd:\nl\n"; strings.ReplaceAll(said, "fuseblk", "fuse") != strings.ReplaceAll(want, "fuseblk", "fuse") {
		t.Errorf("said %q, want %q", said, want)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "d", "l")); string(text) != "new\n" {
		t.Errorf("below there is %q, %v", text, err)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("the mount is this process's too, %v", err)
	}
}

// TestFaults: each fault is what it says it is, to the calls it names alone.
func TestFaults(t *testing.T) {
	const second = `dd if=$D/f of=/dev/null bs=4096 status=none`
	for name, c := range map[string]struct {
		fault  Fault
		script string
		want   string // is in what is said
		struck int
	}{
		"the third read":    {Fault{Call: Read, From: 3, Times: 1, Errno: syscall.EIO}, second, "Input/output error", 1},
		"a read behind all": {Fault{Call: Read, From: 30, Errno: syscall.EIO}, second, "", 0},
		"another directory": {Fault{Call: Read, Name: "d/f", Errno: syscall.EIO}, "mkdir $D/d; echo 1 >$D/d/f; cat $D/f | wc -c; cat $D/d/f", "40960\ncat:", 1},
		"another name":      {Fault{Call: Read, Name: "g*", Errno: syscall.EIO}, second, "", 0},
		"short reads":       {Fault{Call: Read, Short: 1000}, "cat $D/f | wc -c", "40960", 42},
		"short writes":      {Fault{Call: Write, Short: 1000}, "cat $D/f >$D/g; wc -c <$D/g", "40960", 41},
		"no space":          {Fault{Call: Write, From: 2, Errno: syscall.ENOSPC}, "dd if=$D/f of=$D/g bs=4096 status=none", "No space left", 1},
		"a lost write":      {Fault{Call: Write, Times: 1, Drop: true}, "echo 123 >$D/g && wc -c <$D/g", "0", 1},
		"a failed sync":     {Fault{Call: Fsync, Times: 1, Errno: syscall.EIO}, "sync $D/f || sync $D/f && echo fine", "fine", 1},
		"a failed close":    {Fault{Call: Flush, Name: "g", Errno: syscall.EIO}, "dd if=/dev/null of=$D/g status=none", "Input/output error", 2},
		"a wrong size":      {Fault{Call: Getattr, Name: "f", Grown: 5}, "stat -c %s $D/f", "40965", 1},
		"a listing":         {Fault{Call: Readdir, From: 2, Errno: syscall.EIO}, "ls $D", "Input/output error", 1},
		"a rename":          {Fault{Call: Rename, Name: "g", Errno: syscall.EBUSY}, "mv $D/f $D/g", "busy", 1},
		"a remove":          {Fault{Call: Unlink, Errno: syscall.EROFS}, "rm -f $D/f", "Read-only", 1},
		"a directory":       {Fault{Call: Access, Errno: syscall.EACCES}, "cd $D", "can't cd", 1},
		"a missing file":    {Fault{Call: Lookup, Name: "f", Errno: syscall.ESTALE}, "cat $D/f", "Stale file handle", 2},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := mountHere(t)
			f.Plan(c.fault)
			if said := begin(t, f, dir, c.script)(); !strings.Contains(said, c.want) || c.want == "" && said != "" {
				t.Errorf("said %q, want %q", said, c.want)
			}
			if n := f.Struck(); n != c.struck {
				t.Errorf("struck %d calls, want %d", n, c.struck)
			}
		})
	}
}

// TestRate: bytes take their time.
func TestRate(t *testing.T) {
	f, dir := mountHere(t)
	f.Plan(Fault{Call: Read, Rate: 409600})
	began := time.Now()
	begin(t, f, dir, "cat $D/f >/dev/null")()
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

// TestStall: what stands still does so through signals, and beside others that
// do not, until it is released.
func TestStall(t *testing.T) {
	f, dir := mountHere(t)
	f.Plan(Fault{Call: Read, Stall: true})
	end := begin(t, f, dir, "trap 'echo signal' TERM; cat $D/f | wc -c")
	for f.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	if said := begin(t, f, dir, "cat <<. >$D/g\nbeside\n.\nstat -c %s $D/g")(); said != "7\n" {
		t.Errorf("beside it: %q", said)
	}
	f.Release()
	if said := end(); said != "40960\n" {
		t.Errorf("behind it: %q", said)
	}
	if n := f.Waiting(); n != 0 {
		t.Errorf("%d wait", n)
	}
}
