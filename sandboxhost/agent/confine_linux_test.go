package agent_test

import (
	"os"
	"strings"
	"testing"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local/landlock"
)

// TestConfine: what a mount would let commands and file calls write they write
// only where the agent is not confined to less; and commands of one signal those
// of another.
func TestConfine(t *testing.T) {
	if landlock.Version() == 0 {
		t.Skip("needs a kernel with Landlock")
	}
	const confine = "--confine=/workspace,/dev/null,/proc"
	for _, args := range [][]string{nil, {confine}, {"--confine", strings.TrimPrefix(confine, "--confine=")}} {
		c := newCage(t)
		c.open, c.args = t.TempDir(), args
		p := c.start(t)
		want := "written\n"
		if args != nil {
			want = "refused\n"
		}
		r, err := p.Exec(t.Context(), "touch /open/f 2>/dev/null && echo written || echo refused; touch /workspace/f && echo x >/dev/null", sandbox.ExecOptions{})
		if err != nil || string(r.Stdout) != want || r.ExitCode != 0 {
			t.Errorf("%v: %+v, %v", args, r, err)
		}
		_, err = p.WriteFile(t.Context(), "/open/g", nil, sandbox.WriteOptions{})
		if refused := sandbox.KindOf(err) == sandbox.KindPermission; refused != (args != nil) {
			t.Errorf("%v: a file call: %v", args, err)
		}
		if names, _ := os.ReadDir(c.open); len(names) > 0 != (args == nil) {
			t.Errorf("%v: there are %v", args, names)
		}
		if r, err := p.Exec(t.Context(), "sleep 300 >/dev/null 2>&1 & echo $! >/workspace/pid", sandbox.ExecOptions{}); err != nil || !r.Background {
			t.Fatalf("%+v, %v", r, err)
		}
		if r, err := p.Exec(t.Context(), "kill $(cat /workspace/pid)", sandbox.ExecOptions{}); err != nil || r.ExitCode != 0 {
			t.Errorf("%v: a command of another: %+v, %v", args, r, err)
		}
		p.unharmed(t)
	}
}
