package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUserIsRefused: an agent that cannot have commands run as another user
// says why and does not serve.
func TestUserIsRefused(t *testing.T) {
	url := "unix://" + filepath.Join(t.TempDir(), "s")
	first := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"}
	for name, c := range map[string]struct {
		before  []string
		program func(*testing.T) string
		user    string
		want    string
		root    bool
	}{
		"not process 1":         {nil, program, "1000:1000", "is not process 1 and root of its namespace", false},
		"the agent's own user":  {first, program, "0:1000", "is the agent's own", true},
		"no user":               {first, program, "root", `"root" is not UID:GID[,GID...]`, true},
		"cgo":                   {first, withCgo, "1000:1000", "built with cgo", true},
		"a namespace of one":    {append([]string{"unshare", "--user", "--map-root-user"}, first[1:]...), program, "1000:1000", "setgroups: ", false},
		"no right to change it": {append(first[:len(first)-1:len(first)-1], "setpriv", "--bounding-set", "-setuid", "--"), program, "1000:1000", "operation not permitted", true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("needs root: a process namespace without one of users")
			}
			line := append(append(c.before, c.program(t)), command(t, url)...)
			cmd := exec.Command(line[0], append(line[1:], "--user", c.user)...)
			if said := begin(t, cmd); !strings.Contains(said, c.want) {
				t.Errorf("it says %q", said)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it ends well")
			}
		})
	}
}

// TestFaultIsTold: an agent that is process 1 and uses a nil pointer says so
// before it ends.
func TestFaultIsTold(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a process namespace without one of users")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "fault")
	build := exec.Command("go", "build", "-o", path, "./testdata/fault")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	said, err := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", path, filepath.Join(dir, "s")).CombinedOutput()
	if err == nil || !strings.Contains(string(said), "nil pointer dereference") || !strings.Contains(string(said), "main.main.func1") {
		t.Errorf("%v: it says %q", err, said)
	}
}

// withCgo builds the program as the go command does where nobody says otherwise.
func withCgo(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	path := filepath.Join(t.TempDir(), "controld-agent")
	cmd := exec.Command("go", "build", "-o", path, "../../cmd/controld-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	return path
}
