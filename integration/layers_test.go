// Package integration holds what only the whole can show: end to end, faults,
// load, and the architecture itself. Nothing imports it.
package integration

import (
	"bytes"
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/controld/controld"

// layer says what a room may depend on: itself and what lies below it, the
// rooms of allow with what lies below them, and outside the standard library
// the modules of outside (nil: any).
type layer struct {
	room    string
	allow   []string
	outside []string
	forbid  []string
	why     string
}

// inSandboxes are the modules that are in the agent, and so in every sandbox.
var inSandboxes = []string{
	"github.com/google/uuid", "github.com/hashicorp/yamux", "github.com/mdlayher/socket", "github.com/mdlayher/vsock",
	"github.com/sourcegraph/jsonrpc2", "golang.org/x/net", "golang.org/x/sync", "golang.org/x/sys", "golang.org/x/time",
}

var layers = []layer{
	{room: "sandbox", outside: []string{}, why: "the contract is the standard library's alone"},
	{room: "sandbox/sandboxtest", allow: []string{"sandbox"}, why: "the suite sees the contract alone"},
	{room: "sandbox/local", allow: []string{"sandbox"}, why: "the machine itself knows no wire"},
	{room: "sandbox/local/landlock", why: "the kernel's rules know no path"},
	{room: "sandbox/local/thread", why: "a thread knows nothing of what it is for"},
	{room: "rpc", allow: []string{"sandbox"}, why: "the wire knows no socket and no server"},
	{room: "transfer", allow: []string{"sandbox"}, outside: []string{"github.com/google/uuid"}, why: "the state machine knows no bytes"},
	{room: "work", allow: []string{"sandbox"}, outside: []string{"github.com/google/uuid"}, why: "what runs apart knows no wire"},
	{room: "fair", outside: []string{}, why: "turns know nothing of what they are for"},
	{room: "dataport", allow: []string{"sandbox", "fair"}, why: "the pumps know no JSON"},
	{room: "rpc/server", allow: []string{"sandbox", "rpc", "transfer", "dataport", "work"}, why: "the server serves any backend"},
	{room: "rpc/server/gate", allow: []string{"dataport"}, why: "the gate knows no protocol"},
	{room: "adapter", allow: []string{"sandbox", "rpc", "dataport"}, forbid: []string{"github.com/rs/zerolog", "os/exec", module + "/rpc/server"},
		why: "the adapter is linked into somebody else's program"},
	{room: "sandboxhost", allow: []string{"sandbox", "sandbox/local", "fair", "rpc", "rpc/server", "adapter", "dataport", "transfer", "work"}, why: "the host is no daemon"},
	{room: "sandboxhost/agent", allow: []string{"sandbox", "sandbox/local", "sandbox/local/landlock", "rpc", "rpc/server", "rpc/server/gate", "dataport", "work", "sandboxhost"},
		outside: inSandboxes, why: "the agent is put into every sandbox"},
	{room: "cmd/controld-agent", allow: []string{"cmd/internal/agentcmd"},
		outside: append([]string{"github.com/spf13/cobra", "github.com/spf13/pflag"}, inSandboxes...), why: "the agent is put into every sandbox"},
	{room: "sandboxhost/daemon", allow: []string{"sandbox", "sandbox/local", "fair", "rpc", "rpc/server", "rpc/server/gate", "adapter", "dataport", "transfer", "work", "sandboxhost",
		"sandboxhost/driver/launch", "sandboxhost/driver/bwrap", "sandboxhost/driver/docker", "sandboxhost/driver/oci", "sandboxhost/driver/host",
		"sandboxhost/driver/image"},
		why: "the composition knows no flags"},
	{room: "sandboxhost/driver/launch", allow: []string{"sandbox/local/thread"}, why: "what drivers share knows no driver"},
	{room: "sandboxhost/driver/hostroot", outside: []string{}, why: "what drivers share knows no driver"},
	{room: "sandboxhost/driver/seccomp", why: "what drivers share knows no driver"},
	{room: "sandboxhost/driver/cgroup", outside: []string{}, why: "what drivers share knows no driver"},
	{room: "sandboxhost/driver/image", why: "what drivers share knows no driver"},
	{room: "sandboxhost/driver/bwrap", allow: []string{"sandbox", "sandboxhost", "sandboxhost/driver/launch", "sandboxhost/driver/hostroot", "sandboxhost/driver/seccomp"},
		why: "a driver knows no other"},
	{room: "sandboxhost/driver/oci", allow: []string{"sandbox", "sandboxhost", "sandboxhost/driver/launch", "sandboxhost/driver/hostroot", "sandboxhost/driver/seccomp", "sandboxhost/driver/cgroup", "sandboxhost/driver/image"},
		why: "a driver knows no other"},
	{room: "sandboxhost/driver/docker", allow: []string{"sandbox", "sandboxhost", "sandboxhost/driver/launch", "sandboxhost/driver/hostroot", "sandboxhost/driver/seccomp", "sandboxhost/driver/cgroup"},
		why: "a driver knows no other"},
	{room: "cmd/runtime-demo", allow: []string{"sandbox", "sandbox/local", "adapter", "sandboxhost/daemon", "cmd/internal/agentcmd"}, why: "the demo is a runtime, not a part of the daemon"},
}

// listed is what go list says of a package.
type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
	Module     *struct{ Path string }
}

func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Imports,Standard,Module"}, args...)...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// TestLayers holds the table of rooms in docs/architecture.md: imports point
// down. Direct imports of our own are checked room by room; what they lead to
// follows, since each room on the way is checked as well.
func TestLayers(t *testing.T) {
	all := goList(t, "./...")
	for _, l := range layers {
		path := module + "/" + l.room
		found := false
		for _, p := range all {
			if p.ImportPath == path {
				found = true
				l.checkImports(t, p)
			}
		}
		if !found {
			t.Errorf("room %s does not exist: the rule would rot", l.room)
		}
		l.checkDeps(t, path)
	}
}

func (l layer) checkImports(t *testing.T, p listed) {
	for _, imp := range p.Imports {
		room, ours := strings.CutPrefix(imp, module+"/")
		if !ours || slices.Contains(l.allow, room) || strings.HasPrefix(room, l.room+"/") {
			continue
		}
		t.Errorf("%s imports %s: %s", l.room, room, l.why)
	}
}

func (l layer) checkDeps(t *testing.T, path string) {
	if l.outside == nil && l.forbid == nil {
		return
	}
	for _, p := range goList(t, "-deps", path) {
		if slices.Contains(l.forbid, p.ImportPath) {
			t.Errorf("%s depends on %s: %s", l.room, p.ImportPath, l.why)
		}
		outside := !p.Standard && p.Module != nil && p.Module.Path != module
		if l.outside != nil && outside && !slices.Contains(l.outside, p.Module.Path) {
			t.Errorf("%s depends on %s: %s", l.room, p.ImportPath, l.why)
		}
	}
}

// testsOnly are the modules that no program of ours is built from.
var testsOnly = []string{"github.com/hanwen/go-fuse/v2", "go.uber.org/goleak"}

// TestModulesOfTheTests: what is there for tests stays there.
func TestModulesOfTheTests(t *testing.T) {
	for _, p := range goList(t, "-deps", "./cmd/...", "./adapter") {
		if p.Module != nil && slices.Contains(testsOnly, p.Module.Path) {
			t.Errorf("the programs depend on %s, which is for tests", p.ImportPath)
		}
	}
	for _, p := range goList(t, "./...") {
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, testsOnly[0]) && !strings.HasPrefix(p.ImportPath, module+"/integration/") {
				t.Errorf("%s imports %s, which is for integration/ alone", p.ImportPath, imp)
			}
		}
	}
}

// TestEveryRoomIsInTheTable finds packages that no rule speaks of.
func TestEveryRoomIsInTheTable(t *testing.T) {
	for _, p := range goList(t, "./...") {
		room := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(room, "cmd/") || strings.HasPrefix(room, "integration") {
			continue // may import anything
		}
		known := slices.ContainsFunc(layers, func(l layer) bool {
			return room == l.room || strings.HasPrefix(room, l.room+"/")
		})
		if !known {
			t.Errorf("package %s is in no room of the table", room)
		}
	}
}

// TestEveryPackageSaysWhatItIsFor wants exactly one package comment each.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	comments := map[string]int{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata" {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		if strings.HasSuffix(path, "_test.go") && filepath.Dir(path) != "../integration" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		comments[dir] += 0
		if file.Doc != nil {
			comments[dir]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, n := range comments {
		if n != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, n)
		}
	}
}
