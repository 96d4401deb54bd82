package sandboxtest_test

import (
	"path/filepath"
	"testing"

	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandbox/sandboxtest"
)

func TestLocal(t *testing.T) {
	for _, cgroups := range []local.Cgroups{local.CgroupsAuto, local.CgroupsOff} {
		t.Run("cgroups "+string(cgroups), func(t *testing.T) {
			dir := t.TempDir()
			b, err := local.New(local.Options{DefaultCwd: filepath.Join(dir, "cwd"), StateDir: filepath.Join(dir, "state"), Cgroups: cgroups})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			sandboxtest.Run(t, b)
		})
	}
}
