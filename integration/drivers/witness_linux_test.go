package drivers

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/landlock"
	"github.com/controld/controld/sandboxhost"
)

// own are the namespaces that a driver's sandboxes have for themselves.
func own(name string) []string {
	all := []string{"mnt", "pid", "net", "ipc", "uts"}
	if name != "docker" && name != "podman" { // whose users are the host's, one sandbox's alone
		all = append(all, "user")
	}
	return all
}

// TestWitness: that a sandbox is what the driver says is seen from inside and
// from outside, not only by its own word.
func TestWitness(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			h := newHost(t, k.driver(t))
			b, err := h.Backend(t.Context(), "acme", "witness")
			if err != nil {
				t.Fatal(err)
			}
			see := func(command string) string {
				t.Helper()
				r, err := b.Exec(t.Context(), command, sandbox.ExecOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSpace(string(r.Stdout))
			}
			if got := see("hostname"); got != "witness" {
				t.Errorf("the host name is %q", got)
			}
			for _, line := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
				if status := see("cat /proc/self/status"); !strings.Contains(status, line) {
					t.Errorf("no %q in\n%s", line, status)
				}
			}
			if got := see("tr '\\0' ' ' </proc/1/cmdline"); !strings.HasPrefix(got, "/run/controld/agent ") {
				t.Errorf("process 1 is %q", got)
			}
			if name == "runsc" {
				if got := see("uname -r"); !strings.Contains(got, "gvisor") {
					t.Errorf("the kernel is %q", got)
				}
				return
			}
			if status := see("cat /proc/self/status"); !strings.Contains(status, "Seccomp:\t2") {
				t.Errorf("no filter of system calls:\n%s", status)
			}
			for _, kind := range own(name) {
				mine, err := os.Readlink("/proc/self/ns/" + kind)
				if err != nil {
					t.Fatal(err)
				}
				if got := see("readlink /proc/self/ns/" + kind); got == mine || !strings.HasPrefix(got, kind+":[") {
					t.Errorf("the namespace %s is %q, and that of the test %q", kind, got, mine)
				}
			}
			// The machine sees its processes too, as a user's of this sandbox
			// alone where root gives those away.
			if os.Geteuid() == 0 && !slices.ContainsFunc(outsideUsers(t, see("readlink /proc/self/ns/pid")), func(uid string) bool { return uid != "0" && len(uid) == 10 }) {
				t.Error("no process of the sandbox is of a user of its own")
			}
		})
	}
}

// outsideUsers are the users of the processes of a pid namespace, as the machine
// sees them.
func outsideUsers(t *testing.T, namespace string) (uids []string) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if ns, err := os.Readlink("/proc/" + p.Name() + "/ns/pid"); err != nil || ns != namespace {
			continue
		}
		status, _ := os.ReadFile("/proc/" + p.Name() + "/status")
		_, rest, _ := strings.Cut(string(status), "\nUid:\t")
		uid, _, _ := strings.Cut(rest, "\t")
		uids = append(uids, uid)
	}
	if len(uids) == 0 {
		t.Error("the machine sees no process of the sandbox")
	}
	return uids
}

// TestHostNetwork: only who asks for it is on the machine's network.
func TestHostNetwork(t *testing.T) {
	mine, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			h := newHostOf(t, k.driver(t), sandboxhost.Box{Network: sandboxhost.NetworkHost})
			b, err := h.Backend(t.Context(), "acme", "default")
			if name == "runsc" {
				if sandbox.KindOf(err) != sandbox.KindUnsupported {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := b.Exec(t.Context(), "readlink /proc/self/ns/net; cat /etc/resolv.conf >/dev/null", sandbox.ExecOptions{})
			if err != nil || strings.TrimSpace(string(r.Stdout)) != mine || r.ExitCode != 0 {
				t.Errorf("%s%s, not %s, %v", r.Stdout, r.Stderr, mine, err)
			}
		})
	}
}

// TestAbstractSocketsOfTheMachine: on the machine's network a sandbox of bwrap
// reaches what others do but the machine's abstract sockets, which Landlock keeps
// from it.
func TestAbstractSocketsOfTheMachine(t *testing.T) {
	if landlock.Version() < 6 {
		t.Skip("needs Landlock of version 6")
	}
	for _, name := range []string{"bwrap", "runc"} {
		t.Run(name, func(t *testing.T) {
			kinds[name].want(t)
			d := &duo{host: newHostOf(t, kinds[name].driver(t), sandboxhost.Box{Network: sandboxhost.NetworkHost})}
			var err error
			if d.Backend, err = d.host.Backend(t.Context(), "acme", "default"); err != nil {
				t.Fatal(err)
			}
			d.brings(t)
			abstract, loopback := "controld-"+uuid.NewString(), listen(t, "tcp", "127.0.0.1:0")
			listen(t, "unix", "@"+abstract)
			r, err := d.Exec(t.Context(), "./foe", sandbox.ExecOptions{Timeout: daemonTimeout, Env: map[string]string{foeEnv: abstract + " " + loopback}})
			if err != nil || r.ExitCode != 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			got := strings.Split(string(r.Stdout), "\n")
			if !slices.Contains(got, "loopback of the host") || slices.Contains(got, "abstract socket") != (name == "runc") {
				t.Errorf("it reached %q", got)
			}
		})
	}
}

// listen accepts connections until the test ends, and returns where.
func listen(t *testing.T, network, address string) string {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// TestWhatIsNotHeldIsRefused: a driver starts nothing that it cannot hold.
func TestWhatIsNotHeldIsRefused(t *testing.T) {
	for name, boxes := range map[string][]sandboxhost.Box{
		"bwrap":  {{Memory: 1 << 30}, {Processes: 100}, {CPUs: 1}, {Image: "x"}, {Network: "bridge"}},
		"runc":   {{Image: "x"}, {Network: "bridge"}}, // it has no store of images here
		"runsc":  {{Processes: 100}, {Image: "x"}, {Network: "bridge"}},
		"docker": {{Network: "bridge"}},
	} {
		k := kinds[name]
		t.Run(name, func(t *testing.T) {
			k.want(t)
			d := k.driver(t)
			for _, box := range boxes {
				h := newHostOf(t, d, box)
				if _, err := h.Backend(t.Context(), "acme", "default"); sandbox.KindOf(err) != sandbox.KindUnsupported {
					t.Errorf("%+v: %v", box, err)
				}
			}
		})
	}
}
