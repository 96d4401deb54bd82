package drivers

import (
	"errors"
	"testing"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/oci"
)

// gVisorMemory is what gVisor's own kernel and the bomb have together.
const gVisorMemory = 128 << 20

// TestLimitsOfGVisor: P16.6. What its kernel has of memory and processors is
// bounded like any container's; a bomb takes the whole sandbox with it, which
// leaves no cgroup.
func TestLimitsOfGVisor(t *testing.T) {
	kinds["runsc"].want(t)
	parent := outer(t)
	box := sandboxhost.Box{Memory: gVisorMemory, CPUs: boxCPUs}
	h := newHostOf(t, oci.Driver{Runtime: "runsc", CgroupParent: parent, Agent: agent}, box)
	for range 2 {
		b, err := h.Backend(t.Context(), "acme", "default")
		if err != nil {
			t.Fatal(err)
		}
		awaitThrottled(t, b, parent)
		_, err = b.Exec(t.Context(), "dd if=/dev/zero of=/dev/null bs=256M count=1", sandbox.ExecOptions{Timeout: daemonTimeout})
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Kind != sandbox.KindUnavailable || e.Reason != sandbox.ReasonOutOfMemory {
			t.Errorf("a bomb: %v", err)
		}
	}
}
