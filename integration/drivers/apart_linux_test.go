package drivers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
)

// apart runs do for every kind whose agent is another user than its workload,
// and wants all others to say that they are not.
func apart(t *testing.T, do func(*testing.T, string, *duo)) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			d := &duo{state: filepath.Join(t.TempDir(), "state")}
			h, err := sandboxhost.New(sandboxhost.Config{StateDir: d.state, Driver: k.driver(t), Limits: sandbox.DefaultLimits()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := h.Close(); err != nil {
					t.Error(err)
				}
			})
			if d.Backend, err = h.Backend(t.Context(), "acme", "default"); err != nil {
				t.Fatal(err)
			}
			info, err := d.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			shared := os.Geteuid() != 0
			if slices.Contains(info.Capabilities, sandbox.CapSharedUser) != shared {
				t.Errorf("capabilities %v", info.Capabilities)
			}
			if shared {
				return
			}
			spec, err := readSpec(one(t, filepath.Join(d.state, "run", "*")))
			if err != nil {
				t.Fatal(err)
			}
			d.base, d.host, d.epoch = spec.IDs.Base, h, info.Epoch
			do(t, name, d)
		})
	}
}

// duo is a sandbox of two users.
type duo struct {
	sandbox.Backend
	host  *sandboxhost.Host
	state string
	epoch string
	base  int // the agent's number on the host
}

// one is the one path of a pattern.
func one(t *testing.T, pattern string) string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %v, %v", pattern, all, err)
	}
	return all[0]
}

// workspace is what the host sees of a path.
func (d *duo) workspace(path ...string) string {
	return filepath.Join(append([]string{d.state, "sandboxes", "acme", "default"}, path...)...)
}

func (d *duo) says(t *testing.T, command string) string {
	t.Helper()
	r, err := d.Exec(t.Context(), command, sandbox.ExecOptions{Timeout: daemonTimeout})
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(string(r.Stdout) + string(r.Stderr))
}

// brings puts the foe into the sandbox.
func (d *duo) brings(t *testing.T) {
	t.Helper()
	self, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if _, err := d.WriteFileStream(t.Context(), "foe", self, sandbox.WriteOptions{Mode: sandbox.Some[uint32](0o755)}); err != nil {
		t.Fatal(err)
	}
}

// saysNothing are deeds that gVisor refuses to nobody: what has no meaning there,
// and the numbers of descriptors, not what they are.
var saysNothing = []string{"setpriority", "sched_setaffinity", "sched_setscheduler", "ioprio_set", "a thread's fd"}

// TestAgentIsOutOfReach: P7.17. Where the agent is another user than its
// workload, the workload can do nothing to it.
func TestAgentIsOutOfReach(t *testing.T) {
	apart(t, func(t *testing.T, name string, d *duo) {
		d.brings(t)
		before, err := d.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Exec(t.Context(), "./foe", sandbox.ExecOptions{Timeout: daemonTimeout, Env: map[string]string{foeEnv: foeApart}})
		if err != nil {
			t.Fatal(err)
		}
		first, rest, _ := strings.Cut(string(r.Stdout), "\n")
		var tried int
		if fmt.Sscanf(first, foeTried+" %d", &tried); tried < 3*65 || r.ExitCode != 0 {
			t.Errorf("%d deeds: %s, exit code %d", tried, r.Stderr, r.ExitCode)
		}
		for line := range strings.Lines(rest) {
			what, says, _ := strings.Cut(line, ":")
			if name != "runsc" || !slices.Contains(saysNothing, what) {
				t.Errorf("%s was not refused: %s", what, says)
			}
		}
		if r, err := d.Exec(t.Context(), "kill -9 -1; sleep 300 & kill -9 -1; wait", sandbox.ExecOptions{Timeout: daemonTimeout}); err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		if after, err := d.Info(t.Context()); err != nil || after.Epoch != before.Epoch {
			t.Errorf("%+v, %v", after, err)
		}
	})
}

// TestWhoIsWho: what the kernel says of the agent's threads and of a command.
func TestWhoIsWho(t *testing.T) {
	apart(t, func(t *testing.T, name string, d *duo) {
		agent, workload := 0, hostroot.UID
		if name == "docker" || name == "podman" {
			agent, workload = d.base, d.base+hostroot.UID
		}
		effective, limit := agent, "file locks"
		if name == "runsc" {
			effective, limit = workload, "cpu time"
		}
		const none = "0000000000000000"
		caps := "CapInh " + none + "; CapPrm %s; CapEff %[1]s; CapBnd " + none + "; CapAmb " + none + "; NoNewPrivs 1"
		users := func(own, effective, files int) string {
			return fmt.Sprintf("Uid %d %d %[1]d %[3]d; Gid %[1]d %[2]d %[1]d %[3]d; Groups; ", own, effective, files)
		}
		fields := []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"}
		see := func(path string) string {
			return strings.ReplaceAll(statusOf(d.says(t, "cat "+path), fields...), "Groups ;", "Groups;")
		}
		if got, want := see("/proc/self/status"), users(workload, workload, workload)+fmt.Sprintf(caps, none); got != want {
			t.Errorf("a command is\n%s, not\n%s", got, want)
		}
		// The mark by which all that grows from it is known is there in a moment.
		await := "n=0; while grep -q '" + limit + ".* unlimited' /proc/$$/limits && [ $n -lt 1000 ]; do n=$((n + 1)); done; "
		if mark := strings.Fields(d.says(t, await+"grep 'Max "+limit+"' /proc/$$/limits")); len(mark) < 5 || mark[3] == "unlimited" || mark[4] != mark[3] {
			t.Errorf("a command's mark is %v", mark)
		}
		const kept = "00000000000000e0" // setuid, setgid, kill
		want := users(agent, effective, workload) + fmt.Sprintf(caps, kept)
		// A thread that has just marked a command may still be on its way out.
		passing := fmt.Sprintf("Uid %d %d ", workload, effective)
		threads := 0
		for _, path := range strings.Fields(d.says(t, "echo /proc/1/task/*/status")) {
			got := see(path)
			if got == "" || strings.HasPrefix(got, passing) {
				continue
			}
			if threads++; got != want {
				t.Errorf("the agent's %s is\n%s, not\n%s", path, got, want)
			}
		}
		if threads < 2 {
			t.Errorf("%d threads were seen", threads)
		}
	})
}

// TestFilesAreTheWorkloads: whatever a call makes belongs to the workload, and
// what the workload may not do no call does for it, and none refuses what it may.
func TestFilesAreTheWorkloads(t *testing.T) {
	apart(t, func(t *testing.T, _ string, d *duo) {
		_, err := d.WriteFile(t.Context(), "written", []byte("x"), sandbox.WriteOptions{})
		if err == nil {
			_, err = d.WriteFileStream(t.Context(), "streamed", strings.NewReader("x"), sandbox.WriteOptions{})
		}
		if err == nil {
			err = d.Mkdir(t.Context(), "made/in", sandbox.MkdirOptions{Recursive: true})
		}
		if err == nil {
			_, err = d.WriteFile(t.Context(), "/tmp/temp", []byte("x"), sandbox.WriteOptions{})
		}
		if err == nil {
			_, err = d.WriteFile(t.Context(), "/dev/shm/shared", []byte("x"), sandbox.WriteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := d.says(t, "stat -c %u:%g written streamed made made/in /tmp/temp /dev/shm/shared | sort -u; id -u; id -g"); got != strings.Replace(d.says(t, "echo $(id -u):$(id -g); id -u; id -g"), " ", "\n", -1) {
			t.Errorf("they belong to\n%s", got)
		}
		d.others(t)
		for path, want := range map[string]sandbox.Kind{
			"others/secret": sandbox.KindPermission, "others/grouped": sandbox.KindPermission, "others/open": "",
			"others/closed/f": sandbox.KindPermission, "blind": sandbox.KindPermission, "own": "",
		} {
			_, err := d.ReadFile(t.Context(), path, sandbox.ReadOptions{})
			stream, streamed := d.ReadFileStream(t.Context(), path, sandbox.ReadOptions{})
			if streamed == nil {
				stream.Close()
			}
			r, failed := d.Exec(t.Context(), "cat "+path, sandbox.ExecOptions{})
			if sandbox.KindOf(err) != want || sandbox.KindOf(streamed) != want || failed != nil || (r.ExitCode == 0) != (want == "") {
				t.Errorf("%s is read: %v, %v, by a command: %+v, %v", path, err, streamed, r, failed)
			}
		}
		d.changes(t)
	})
}

// others makes files of the agent's user and some of the workload's.
func (d *duo) others(t *testing.T) {
	t.Helper()
	d.says(t, "umask 077; echo x >own; echo x >blind; chmod 0 blind")
	for _, one := range []struct {
		path string
		mode os.FileMode
	}{
		{"others", os.ModeDir | 0o755}, {"sticky", os.ModeDir | os.ModeSticky | 0o777}, {"others/closed", os.ModeDir | 0o700},
		{"others/secret", 0o600}, {"others/grouped", 0o640}, {"others/open", 0o644}, {"others/closed/f", 0o644}, {"sticky/theirs", 0o644},
	} {
		path := d.workspace(one.path)
		var err error
		if one.mode.IsDir() {
			err = os.Mkdir(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte("x"), 0o600)
		}
		if err == nil {
			err = os.Chown(path, d.base, d.base)
		}
		if err == nil {
			err = os.Chmod(path, one.mode&^os.ModeDir)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// changes wants what others own to stay, and everything else to change.
func (d *duo) changes(t *testing.T) {
	t.Helper()
	for what, err := range map[string]error{
		"a file in another's directory":   fails(d.WriteFile(t.Context(), "others/new", nil, sandbox.WriteOptions{})),
		"another's file there":            fails(d.WriteFile(t.Context(), "others/open", nil, sandbox.WriteOptions{})),
		"an upload there":                 fails(d.WriteFileStream(t.Context(), "others/new", strings.NewReader(""), sandbox.WriteOptions{})),
		"a directory there":               d.Mkdir(t.Context(), "others/new", sandbox.MkdirOptions{}),
		"a removal there":                 d.Rm(t.Context(), "others/open", sandbox.RmOptions{}),
		"another's file where all write":  fails(d.WriteFile(t.Context(), "sticky/theirs", nil, sandbox.WriteOptions{})),
		"a removal of it":                 d.Rm(t.Context(), "sticky/theirs", sandbox.RmOptions{}),
		"a listing of a closed directory": fails(d.ReadDir(t.Context(), "others/closed", sandbox.ReadDirOptions{})),
	} {
		if kind := sandbox.KindOf(err); kind != sandbox.KindPermission {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := d.WriteFile(t.Context(), "sticky/ours", []byte("x"), sandbox.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if got := d.says(t, "cat sticky/ours && rm sticky/ours && rm -f sticky/theirs 2>/dev/null; ls sticky"); !strings.HasPrefix(got, "x") || !strings.HasSuffix(got, "theirs") {
		t.Errorf("a command there: %s", got)
	}
}

// fails forgets a result.
func fails[T any](_ T, err error) error { return err }

// TestSetuidGainsNothing: a program of root's that would make its user root does
// not.
func TestSetuidGainsNothing(t *testing.T) {
	apart(t, func(t *testing.T, _ string, d *duo) {
		id, err := os.ReadFile("/usr/bin/id")
		if err != nil {
			t.Fatal(err)
		}
		path := d.workspace("id")
		if err := os.WriteFile(path, id, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, owner := range []int{d.base, 0} {
			if err := os.Chown(path, owner, owner); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
				t.Fatal(err)
			}
			if got, want := d.says(t, "./id"), d.says(t, "id"); got != want {
				t.Errorf("it is %s, not %s", got, want)
			}
		}
	})
}
