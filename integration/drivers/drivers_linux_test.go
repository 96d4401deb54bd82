// Package drivers runs what every kind of isolation must do against each of
// them for real.
package drivers

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/sandboxtest"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/bwrap"
	"github.com/controld/controld/sandboxhost/driver/launch"
	"github.com/controld/controld/sandboxhost/driver/oci"
)

// program is the real one, built once, and agent the smaller one beside it.
var (
	program string
	agent   launch.Agent
)

func TestMain(m *testing.M) {
	if arguments := os.Getenv(foeEnv); arguments != "" {
		os.Exit(foe(arguments))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "controld-drivers-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "controld")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir,
		"github.com/controld/controld/cmd/controld", "github.com/controld/controld/cmd/controld-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	if agent, err = launch.Seal(filepath.Join(dir, "sealed"), program+"-agent"); err != nil {
		panic(err)
	}
	return m.Run()
}

func newHost(t testing.TB, d sandboxhost.Driver) *sandboxhost.Host {
	t.Helper()
	return newHostOf(t, d, sandboxhost.Box{})
}

func newHostOf(t testing.TB, d sandboxhost.Driver, box sandboxhost.Box) *sandboxhost.Host {
	t.Helper()
	h, err := sandboxhost.New(sandboxhost.Config{
		StateDir: filepath.Join(t.TempDir(), "state"), Driver: d, Box: box, Limits: sandbox.DefaultLimits(),
		Ended: func(s sandboxhost.Spec, d sandboxhost.Death, left error) {
			if d != (sandboxhost.Death{}) || left != nil {
				t.Logf("%s ended: %+v, %v", s.Sandbox, d, left)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// kind is a driver, and how it is made here and by a daemon's flags.
type kind struct {
	// needs is the program behind it. All but bwrap want root.
	needs  string
	driver func(testing.TB) sandboxhost.Driver
	flags  func(testing.TB) []string
	// bounded makes it with all its cgroups below one; nil where there are none.
	bounded func(t *testing.T, parent string) sandboxhost.Driver
}

// want leaves a test out where an ordinary user cannot have the driver. Root
// has all of them: what is missing there is an error.
func (k kind) want(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if k.needs != "bwrap" {
		t.Skipf("%s needs root", k.needs)
	}
	if _, err := exec.LookPath(k.needs); err != nil {
		t.Skipf("missing: %s (Debian package bubblewrap)", k.needs)
	}
}

// kinds are the drivers to test, by the name of the program behind each.
var kinds = map[string]kind{
	"bwrap": {
		"bwrap",
		func(testing.TB) sandboxhost.Driver { return bwrap.Driver{Agent: agent} },
		func(testing.TB) []string { return []string{"--driver", "bwrap"} },
		nil,
	},
	"runc": {
		"runc",
		func(testing.TB) sandboxhost.Driver { return oci.Driver{Runtime: "runc", Agent: agent} },
		func(testing.TB) []string { return []string{"--driver", "oci"} },
		func(_ *testing.T, parent string) sandboxhost.Driver {
			return oci.Driver{Runtime: "runc", CgroupParent: parent, Agent: agent}
		},
	},
	"crun": {
		"crun",
		func(testing.TB) sandboxhost.Driver { return oci.Driver{Runtime: "crun", Agent: agent} },
		func(testing.TB) []string { return []string{"--driver", "oci", "--runtime", "crun"} },
		func(_ *testing.T, parent string) sandboxhost.Driver {
			return oci.Driver{Runtime: "crun", CgroupParent: parent, Agent: agent}
		},
	},
	"runsc": {
		"runsc",
		func(testing.TB) sandboxhost.Driver { return oci.Driver{Runtime: "runsc", Agent: agent} },
		func(testing.TB) []string { return []string{"--driver", "oci", "--runtime", "runsc"} },
		nil,
	},
	"docker": {
		"dockerd",
		func(t testing.TB) sandboxhost.Driver { return newDocker(t, dockerd(t), "") },
		func(t testing.TB) []string { return []string{"--driver", "docker", "--engine", "unix://" + dockerd(t)} },
		func(t *testing.T, parent string) sandboxhost.Driver { return newDocker(t, dockerd(t), parent) },
	},
	"podman": {
		"podman",
		func(t testing.TB) sandboxhost.Driver { return newDocker(t, podman(t), "") },
		func(t testing.TB) []string { return []string{"--driver", "docker", "--engine", "unix://" + podman(t)} },
		func(t *testing.T, parent string) sandboxhost.Driver { return newDocker(t, podman(t), parent) },
	},
}

// TestConformance: what holds for any sandbox, and P16.2.
func TestConformance(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			h := newHost(t, k.driver(t))
			b, err := h.Backend(t.Context(), "acme", "default")
			if err != nil {
				t.Fatal(err)
			}
			if info, err := b.Info(t.Context()); err != nil || info.Cwd != "/workspace" {
				t.Errorf("%+v, %v", info, err)
			}
			sandboxtest.Run(t, b)
		})
	}
}
