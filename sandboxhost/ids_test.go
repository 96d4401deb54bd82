package sandboxhost

import (
	"maps"
	"os"
	"slices"
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
	want := func(of map[string]int) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if n := get("acme", name); n != of[name] {
				t.Errorf("%s has %d, want %d", name, n, of[name])
			}
		}
	}
	want(map[string]int{"b": 1, "c": 2, "d": 0, "e": 3, "f": 4})
	if err := k.drop("acme", "b"); err != nil {
		t.Fatal(err)
	}
	want(map[string]int{"c": 2, "g": 1, "h": 5})
	// What was an instance's of nobody's is a sandbox's in place of its own.
	if n := get("", "spare"); n != 6 {
		t.Errorf("the spare has %d", n)
	}
	for range 2 {
		if err := k.move(Spec{ID: "spare", Tenant: "acme", Sandbox: "c"}); err != nil {
			t.Fatal(err)
		}
	}
	want(map[string]int{"c": 6, "i": 2, "j": 7})
}
