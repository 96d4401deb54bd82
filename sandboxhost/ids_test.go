package sandboxhost

import (
	"os"
	"testing"
)

// TestIDsComeBack: users that nobody has a file of any more are given again,
// those of others are not, over a restart as well.
func TestIDsComeBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has users to give away")
	}
	dir := t.TempDir()
	k, err := openIDs(dir)
	if err != nil {
		t.Fatal(err)
	}
	get := func(tenant, name string) int {
		t.Helper()
		ids, err := k.get(tenant, name)
		if err != nil {
			t.Fatal(err)
		}
		return (ids.Base - idsFrom) / idsEach
	}
	for i, name := range []string{"a", "b", "c"} {
		if n := get("acme", name); n != i {
			t.Errorf("%s has %d", name, n)
		}
	}
	if err := k.drop("acme", "a"); err != nil {
		t.Fatal(err)
	}
	if err := k.drop("acme", "a"); err != nil {
		t.Errorf("once more: %v", err)
	}
	if k, err = openIDs(dir); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"d", "b", "c", "e", "f"} {
		if n, want := get("acme", name), []int{0, 1, 2, 3, 4}[i]; n != want {
			t.Errorf("%s has %d, want %d", name, n, want)
		}
	}
}
