package sandboxtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "keep" {
		os.Exit(local.Keep())
	}
	os.Exit(m.Run())
}

func TestLocal(t *testing.T) {
	for _, c := range []struct {
		name    string
		cgroups local.Cgroups
		kept    bool
	}{{"cgroups auto", local.CgroupsAuto, false}, {"cgroups off", local.CgroupsOff, false}, {"keeper", local.CgroupsOff, true}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			o := local.Options{DefaultCwd: filepath.Join(dir, "cwd"), StateDir: filepath.Join(dir, "state"), Cgroups: c.cgroups}
			if c.kept {
				o.Keeper = local.NewKeeper("/proc/self/exe", os.Args[0], "keep")
				defer o.Keeper.Close()
			}
			b, err := local.New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			sandboxtest.Run(t, b)
		})
	}
}
