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

// agent is the real program, built once.
var agent launch.Agent

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "controld-drivers-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "controld"), "github.com/controld/controld/cmd/controld")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	if agent, err = launch.Seal(dir, filepath.Join(dir, "controld"), "agent"); err != nil {
		panic(err)
	}
	return m.Run()
}

func newHost(t *testing.T, d sandboxhost.Driver) *sandboxhost.Host {
	t.Helper()
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: filepath.Join(t.TempDir(), "state"), Driver: d, Limits: sandbox.DefaultLimits()})
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

// kinds make the drivers to test, by the name of the program behind each.
var kinds = map[string]func(*testing.T) sandboxhost.Driver{
	"bwrap":  func(*testing.T) sandboxhost.Driver { return bwrap.Driver{Agent: agent} },
	"runc":   func(*testing.T) sandboxhost.Driver { return oci.Driver{Runtime: "runc", Agent: agent} },
	"crun":   func(*testing.T) sandboxhost.Driver { return oci.Driver{Runtime: "crun", Agent: agent} },
	"docker": dockerd,
	"podman": podman,
}

func TestConformance(t *testing.T) {
	for name, driver := range kinds {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, driver(t))
			b, err := h.Backend(t.Context(), "acme", "default")
			if err != nil {
				t.Fatal(err)
			}
			sandboxtest.Run(t, b)
		})
	}
}
