package sandboxhost_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// pooled is a host with a pool, and where its state is.
type pooled struct {
	*sandboxhost.Host
	t     *testing.T
	dir   string
	d     *remote
	mu    sync.Mutex
	fails []time.Time
	ended []sandboxhost.Spec
}

func newPooled(t *testing.T, size int) *pooled {
	t.Helper()
	p := &pooled{t: t, dir: filepath.Join(t.TempDir(), "state"), d: &remote{backend: agentBackend{}}}
	tokens, err := sandboxhost.ParseTokens("f", strings.NewReader("acme * "+sum+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	p.Host, err = sandboxhost.New(sandboxhost.Config{StateDir: p.dir, Driver: p.d, Tokens: tokens, Pool: size, MaxLife: time.Hour,
		PoolFailed: func(string, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.fails = append(p.fails, time.Now())
		},
		Ended: func(spec sandboxhost.Spec, _ sandboxhost.Death, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ended = append(p.ended, spec)
			if err != nil {
				t.Error(err)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	p.FillPools()
	return p
}

// awaitReady waits until so many are ready.
func (p *pooled) awaitReady(n int) {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); p.Ready()[""] != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%d are ready, not %d", p.Ready()[""], n)
		}
	}
}

func (p *pooled) open(name string) *server.Session {
	p.t.Helper()
	s, err := p.Open(p.t.Context(), rpc.HelloParams{Token: "secret", Sandbox: name}, server.Visitor{})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// names are the entries of a directory of the state.
func (p *pooled) names(elem ...string) []string {
	p.t.Helper()
	entries, err := os.ReadDir(filepath.Join(append([]string{p.dir}, elem...)...))
	if err != nil {
		p.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// record reads what is written down of an instance.
func (p *pooled) record(id string) (spec sandboxhost.Spec) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "run", id, "spec.json"))
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return spec
}

// TestPool: P17.16. A sandbox without files gets an instance that was ready, with all
// that is its own; one that has some gets another.
func TestPool(t *testing.T) {
	p := newPooled(t, 2)
	p.awaitReady(2)
	ready := p.names("run")
	if got := p.names("pool"); !slices.Equal(got, ready) || len(ready) != 2 {
		t.Fatalf("directories %v of instances %v", got, ready)
	}
	spare := p.record(ready[0])
	if spare.Tenant != "" || spare.Sandbox != "sandbox" {
		t.Errorf("%+v", spare)
	}
	if got, err := p.ListSandboxes(t.Context(), session("acme")); err != nil || len(got) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	asked := time.Now()
	s := p.open("one")
	if !slices.Contains(ready, s.Life) || s.Epoch != p.Epoch() || s.Info.Tenant != "acme" || s.Info.Sandbox != "one" || s.Info.Epoch != s.Epoch {
		t.Errorf("%+v", s)
	}
	if info, err := s.Backend.Info(t.Context()); err != nil || info.Sandbox != "one" || info.Tenant != "acme" || info.Epoch != s.Epoch {
		t.Errorf("%+v, %v", info, err)
	}
	if got := p.record(s.Life); got.Tenant != "acme" || got.Sandbox != "one" || got.Secret == "" {
		t.Errorf("%+v", got)
	}
	if st, err := p.SandboxStatus(t.Context(), session("acme"), "one"); err != nil || st.Instance != s.Life || !st.Ends.Known || st.Started.Value.Before(asked) {
		t.Errorf("%+v, %v", st, err)
	}
	if slices.Contains(p.names("pool"), s.Life) || !slices.Equal(p.names("sandboxes", "acme"), []string{"one"}) {
		t.Errorf("%v, %v", p.names("pool"), p.names("sandboxes", "acme"))
	}
	p.awaitReady(2)
	if n := len(p.d.spec); n != 3 {
		t.Errorf("%d starts", n)
	}
	if err := os.Mkdir(filepath.Join(p.dir, "sandboxes", "acme", "old"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := p.names("pool")
	if old := p.open("old"); slices.Contains(before, old.Life) || len(p.d.spec) != 4 || !slices.Equal(p.names("pool"), before) {
		t.Errorf("a sandbox with files got %s of %v", old.Life, before)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if run, pool := p.names("run"), p.names("pool"); len(run)+len(pool) > 0 {
		t.Errorf("left: %v, %v", run, pool)
	}
}

// TestPoolOfUsers: what was ready has users of its own, which are the sandbox's
// from then on, in the place of those it had.
func TestPoolOfUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has users to give away")
	}
	p := newPooled(t, 1)
	p.awaitReady(1)
	first := p.record(p.open("one").Life).IDs
	p.awaitReady(1)
	second := p.record(p.open("two").Life).IDs
	if first == second || first.Base == 0 {
		t.Errorf("%+v, %+v", first, second)
	}
	if err := p.RemoveSandbox(t.Context(), session("acme"), "one", false); err != nil {
		t.Fatal(err)
	}
	if again := p.record(p.open("one").Life).IDs; again != first {
		t.Errorf("%+v were %+v", again, first)
	}
	if err := p.RemoveSandbox(t.Context(), session("acme"), "one", true); err != nil {
		t.Fatal(err)
	}
	p.awaitReady(1)
	ready := p.record(p.names("pool")[0]).IDs
	if got := p.record(p.open("one").Life).IDs; got != ready || got == second {
		t.Errorf("%+v, ready were %+v", got, ready)
	}
}

// TestPoolUnderMany: of many first hellos at once each gets an instance of its
// own.
func TestPoolUnderMany(t *testing.T) {
	p := newPooled(t, 4)
	p.awaitReady(4)
	const many = 50
	lives := make([]string, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			s, err := p.Open(t.Context(), rpc.HelloParams{Token: "secret", Sandbox: fmt.Sprintf("s%d", i)}, server.Visitor{})
			if err != nil {
				t.Error(err)
				return
			}
			lives[i] = s.Life
		})
	}
	all.Wait()
	seen := make(map[string]bool)
	users := make(map[int]bool)
	for i, id := range lives {
		spec := p.record(id)
		if seen[id] || spec.Sandbox != fmt.Sprintf("s%d", i) || users[spec.IDs.Base] && spec.IDs.Base != 0 {
			t.Errorf("s%d has %s: %+v", i, id, spec)
		}
		seen[id], users[spec.IDs.Base] = true, true
	}
	p.awaitReady(4)
	if n := len(p.names("sandboxes", "acme")); n != many {
		t.Errorf("%d directories", n)
	}
	if n := len(p.names("run")); n != many+4 {
		t.Errorf("%d instances", n)
	}
}

// TestPoolWaits: starts that fail are tried again later and later; what was
// ready and died counts as one.
func TestPoolWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		failing := &driver{}
		failing.fail.Store(true)
		var fails []time.Duration
		h, err := sandboxhost.New(sandboxhost.Config{StateDir: filepath.Join(t.TempDir(), "state"), Driver: failing, Pool: 1,
			PoolFailed: func(tier string, err error) {
				if tier != "" || err == nil {
					t.Errorf("%q, %v", tier, err)
				}
				fails = append(fails, time.Since(began))
			}})
		if err != nil {
			t.Fatal(err)
		}
		h.FillPools()
		time.Sleep(200 * time.Second)
		synctest.Wait()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		seconds := []int{0, 1, 3, 7, 15, 31, 63, 123, 183}
		if len(fails) != len(seconds) {
			t.Fatalf("%v, want %v s", fails, seconds)
		}
		for i, want := range seconds {
			if fails[i] != time.Duration(want)*time.Second {
				t.Errorf("start %d failed at %v, want %d s", i, fails[i], want)
			}
		}
	})
}

// TestSpareThatDies is cleared away, told of, and replaced after a while.
func TestSpareThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPooled(t, 1)
		synctest.Wait()
		first := p.names("pool")
		if len(first) != 1 {
			t.Fatalf("%v", first)
		}
		p.d.last.die(sandboxhost.Death{Detail: "it fell"})
		synctest.Wait()
		if run, pool := p.names("run"), p.names("pool"); len(run)+len(pool) > 0 || len(p.ended) != 1 || p.ended[0].ID != first[0] {
			t.Errorf("left: %v, %v; told: %+v", run, pool, p.ended)
		}
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if n := p.Ready()[""]; n != 0 {
			t.Errorf("%d are ready at once", n)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if n := p.Ready()[""]; n != 1 {
			t.Errorf("%d are ready", n)
		}
		// The last one has a hello at once, the next start waits for that.
		p.d.last.die(sandboxhost.Death{})
		synctest.Wait()
		if s := p.open("one"); len(p.d.spec) != 3 || slices.Contains(first, s.Life) {
			t.Errorf("%d starts", len(p.d.spec))
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestPoolInThisProcess: what runs in this process has nothing to give away.
func TestPoolInThisProcess(t *testing.T) {
	told := make(chan error, 1)
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: filepath.Join(t.TempDir(), "state"), Driver: &driver{}, Pool: 1,
		PoolFailed: func(_ string, err error) {
			select {
			case told <- err:
			default:
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.FillPools()
	if err := <-told; sandbox.KindOf(err) != sandbox.KindUnsupported {
		t.Errorf("%v", err)
	}
	if _, err := h.Backend(t.Context(), "acme", "one"); err != nil {
		t.Error(err)
	}
}

// TestPoolAfterAKill: whatever moment a host is killed in, the next one finds
// an instance that is nobody's, which it ends, or a sandbox's, which is whole.
func TestPoolAfterAKill(t *testing.T) {
	const id, users = "0b9c0f5e-6a55-4d2f-9a0f-3f1f3f0f8f01", 7
	of := func(tenant, name string) string {
		text, err := json.Marshal(sandboxhost.Spec{ID: id, Driver: "test", Tenant: tenant, Sandbox: name, Secret: "s"})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, c := range map[string]struct {
		record, ids string   // as they are found; no record where empty
		dirs        []string // and these, with a file where they end with one
		dead        bool
		lives, kept bool // the sandbox does, has a directory
		refused     bool
	}{
		"users given":            {ids: `{"/` + id + `": 7}`, dirs: []string{"run"}},
		"a directory made":       {ids: `{"/` + id + `": 7}`, dirs: []string{"run", "pool/" + id}},
		"an instance's made":     {ids: `{"/` + id + `": 7}`, dirs: []string{"run/" + id, "pool/" + id}},
		"ready":                  {record: of("", "sandbox"), ids: `{"/` + id + `": 7}`, dirs: []string{"pool/" + id}},
		"ready, and dead":        {record: of("", "sandbox"), ids: `{"/` + id + `": 7}`, dirs: []string{"pool/" + id}, dead: true},
		"written down":           {record: of("acme", "one"), ids: `{"/` + id + `": 7, "acme/one": 3}`, dirs: []string{"pool/" + id}, lives: true, kept: true},
		"written down, and dead": {record: of("acme", "one"), ids: `{"/` + id + `": 7}`, dirs: []string{"pool/" + id}, dead: true},
		"users moved":            {record: of("acme", "one"), ids: `{"acme/one": 7}`, dirs: []string{"pool/" + id}, lives: true, kept: true},
		"all done":               {record: of("acme", "one"), ids: `{"acme/one": 7}`, dirs: []string{"sandboxes/acme/one"}, lives: true, kept: true},
		"its place taken":        {record: of("acme", "one"), ids: `{"acme/one": 7}`, dirs: []string{"pool/" + id, "sandboxes/acme/one/in"}, kept: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			for _, dir := range append(c.dirs, "sandboxes/acme") {
				if err := os.MkdirAll(filepath.Join(state, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(state, "ids.json"), []byte(c.ids), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.record != "" {
				if err := os.MkdirAll(filepath.Join(state, "run", id), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(state, "run", id, "spec.json"), []byte(c.record), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d := &keeper{living: map[string]bool{id: !c.dead}}
			h, err := sandboxhost.New(sandboxhost.Config{StateDir: state, Driver: d})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if err := h.Adopt(t.Context()); (err != nil) != c.refused {
				t.Errorf("%v", err)
			}
			st, err := h.SandboxStatus(t.Context(), session("acme"), "one")
			if lives := err == nil && st.State == sandbox.StateRunning; lives != c.lives {
				t.Errorf("%+v, %v", st, err)
			}
			if _, err := os.Stat(filepath.Join(state, "sandboxes", "acme", "one")); (err == nil) != c.kept {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(filepath.Join(state, "pool", id)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left in the pool: %v", err)
			}
			if _, err := os.Stat(filepath.Join(state, "run", id)); (err == nil) != c.lives {
				t.Errorf("its own directory: %v", err)
			}
			if os.Geteuid() != 0 {
				return
			}
			var given map[string]int
			text, err := os.ReadFile(filepath.Join(state, "ids.json"))
			if err == nil {
				err = json.Unmarshal(text, &given)
			}
			if _, left := given["/"+id]; err != nil || left || c.lives && given["acme/one"] != users {
				t.Errorf("%s, %v", text, err)
			}
		})
	}
}
