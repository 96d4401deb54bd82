package local_test

import (
	"testing"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
)

// TestLimitsThatCannotBeHeld: a limit that nothing enforces is refused, not
// ignored. Without cgroups nothing does; whether they hold where they can is
// shown in a machine of its own, see integration/guest.
func TestLimitsThatCannotBeHeld(t *testing.T) {
	for name, each := range map[string]local.Each{"memory": {Memory: 1 << 20}, "processes": {Processes: 8}} {
		sb, err := local.New(local.Options{DefaultCwd: t.TempDir(), StateDir: t.TempDir(), Cgroups: local.CgroupsOff, Each: each})
		if err == nil {
			sb.Close()
		}
		if sandbox.KindOf(err) != sandbox.KindUnsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
}
