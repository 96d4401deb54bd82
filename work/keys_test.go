package work_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/work"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	keyA = "0190f3c1-7b1e-7d5a-9c3e-00000000000a"
	keyB = "0190f3c1-7b1e-7d5a-9c3e-00000000000b"
)

func newKeys(t *testing.T, cfg work.KeysConfig) *work.Keys {
	t.Helper()
	k, err := work.NewKeys(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// once begins a call that ends at once with an answer of so many bytes, or
// returns the answer of an earlier one; what says which.
func once(t *testing.T, k *work.Keys, tenant, key string, size int64) (what string) {
	t.Helper()
	c, first, err := k.Tenant(tenant).Begin("box", "", key, 1, func(*work.Call) any { return "work" })
	switch {
	case err != nil:
		return string(sandbox.KindOf(err))
	case !first:
		return "again"
	}
	c.Done(size)
	return "first"
}

// TestAnswersGo: P14.6. By age, by number, by size; and a big one goes before
// small ones that are older.
func TestAnswersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeys(t, work.KeysConfig{})
		key := func(n int) string { return fmt.Sprintf("0190f3c1-7b1e-7d5a-9c3e-%012d", n) }
		want := func(tenant string, n int, what string) {
			t.Helper()
			if got := once(t, k, tenant, key(n), 100); got != what {
				t.Errorf("%s's call %d: %s, want %s", tenant, n, got, what)
			}
		}
		want("age", 0, "first")
		time.Sleep(10*time.Minute - 1)
		want("age", 0, "again")
		want("age", 1, "first")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		want("age", 0, "outcome_unknown")
		want("age", 1, "again")
		for n := range 4096 {
			want("number", n, "first")
		}
		want("number", 0, "again")
		want("number", 4096, "first")
		want("number", 0, "outcome_unknown")
		want("number", 1, "again")
		once(t, k, "size", key(0), 4<<10)
		for n := 1; n <= 4; n++ {
			once(t, k, "size", key(n), 16<<20-1<<10) // these four and the small one fit
		}
		want("size", 1, "again")
		once(t, k, "size", key(5), 5<<10)
		want("size", 0, "again")
		want("size", 1, "outcome_unknown")
		want("size", 2, "again")
		want("size", 5, "again")
		k.Close()
	})
}

func TestRunningCallsStay(t *testing.T) {
	k := newKeys(t, work.KeysConfig{MaxAnswers: 1})
	c, first, err := k.Tenant("a").Begin("box", "", keyA, 1, func(*work.Call) any { return 7 })
	if err != nil || !first {
		t.Fatal(first, err)
	}
	for n := range 3 {
		once(t, k, "a", fmt.Sprintf("0190f3c1-7b1e-7d5a-9c3e-%012d", n), 1)
	}
	if again, first, err := k.Tenant("a").Begin("box", "", keyA, 1, nil); again != c || first || err != nil || again.Work != 7 {
		t.Fatal(again, first, err)
	}
	if _, _, err := k.Tenant("a").Begin("box", "", keyA, 2, nil); sandbox.KindOf(err) != sandbox.KindConflict {
		t.Fatal(err)
	}
	for _, other := range []string{"other box", "other tenant"} {
		tenant, box := "a", "box2"
		if other == "other tenant" {
			tenant, box = "b", "box"
		}
		if _, first, err := k.Tenant(tenant).Begin(box, "", keyA, 2, func(*work.Call) any { return 8 }); !first || err != nil {
			t.Fatal(other, first, err)
		}
	}
}

// TestKeysOverRestarts: P14.8. What was begun is known to the next process for
// a day, and no key is known for ever.
func TestKeysOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := work.KeysConfig{Dir: filepath.Join(t.TempDir(), "keys")}
		k := newKeys(t, cfg)
		next := func() { k.Close(); k = newKeys(t, cfg) }
		want := func(key, what string) {
			t.Helper()
			if got := once(t, k, "acme", key, 1); got != what {
				t.Errorf("got %s, want %s", got, what)
			}
		}
		want(keyA, "first")
		for range 4 { // into other pages
			time.Sleep(6*time.Hour - 1)
			next()
			want(keyA, "outcome_unknown")
		}
		want(keyB, "first")
		next()
		time.Sleep(6*time.Hour + 10)
		want(keyA, "first")
		want(keyB, "outcome_unknown")
		next()
		want(keyA, "outcome_unknown")
		time.Sleep(31 * time.Hour)
		next()
		if pages, err := filepath.Glob(filepath.Join(cfg.Dir, "*", "*")); err != nil || len(pages) != 0 {
			t.Errorf("left: %v, %v", pages, err)
		}
		k.Close()
	})
}

// TestWholeDay: P14.7. The last key of a page is known for a day as well.
func TestWholeDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeys(t, work.KeysConfig{})
		once(t, k, "acme", keyA, 1)
		time.Sleep(6*time.Hour - 1)
		once(t, k, "acme", keyB, 1)
		time.Sleep(24 * time.Hour)
		if got := once(t, k, "acme", keyB, 1); got != "outcome_unknown" {
			t.Error(got)
		}
		k.Close()
	})
}

// TestTornPage: half a key at the end of a page, from a death in mid-write, is
// no key and shifts none.
func TestTornPage(t *testing.T) {
	cfg := work.KeysConfig{Dir: t.TempDir()}
	k := newKeys(t, cfg)
	once(t, k, "acme", keyA, 1)
	k.Close()
	pages, _ := filepath.Glob(filepath.Join(cfg.Dir, "acme", "*"))
	if len(pages) != 1 {
		t.Fatal(pages)
	}
	f, err := os.OpenFile(pages[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("abc")
	f.Close()
	k = newKeys(t, cfg)
	if a, b := once(t, k, "acme", keyA, 1), once(t, k, "acme", keyB, 1); a != "outcome_unknown" || b != "first" {
		t.Fatal(a, b)
	}
	k.Close()
	k = newKeys(t, cfg)
	if a, b := once(t, k, "acme", keyA, 1), once(t, k, "acme", keyB, 1); a != "outcome_unknown" || b != "outcome_unknown" {
		t.Fatal(a, b)
	}
}

// TestMemoryIsFull: P14.9. A key too many is refused until there is room, and
// none is forgotten for it; so is one that cannot be written.
func TestMemoryIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "keys")
		k := newKeys(t, work.KeysConfig{Dir: dir, MaxRemembered: 1, MaxAnswers: 1})
		once(t, k, "acme", keyA, 1)
		_, _, err := k.Tenant("acme").Begin("box", "", keyB, 1, nil)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Kind != sandbox.KindResourceExhausted || e.Reason != sandbox.ReasonRequestKey ||
			e.Limit != sandbox.Some(int64(1)) || e.RetryAfter != 30*time.Hour || e.Outcome != sandbox.OutcomeNone {
			t.Fatalf("%+v", err)
		}
		if got := once(t, k, "acme", keyA, 1); got != "again" {
			t.Error(got)
		}
		time.Sleep(e.RetryAfter + 1)
		if got := once(t, k, "acme", keyB, 1); got != "first" {
			t.Error(got)
		}
		if err := os.WriteFile(filepath.Join(dir, "wrong"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err = k.Tenant("wrong").Begin("box", "", keyA, 1, nil)
		if !errors.As(err, &e) || e.Kind != sandbox.KindResourceExhausted || e.Reason != sandbox.ReasonRequestKey || e.RetryAfter != time.Minute {
			t.Fatalf("%+v", err)
		}
		k.Close()
	})
}
