package drivers

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// awaitReady waits until a host has so many sandboxes ready.
func awaitReady(t testing.TB, h *sandboxhost.Host, n int) {
	t.Helper()
	for deadline := time.Now().Add(daemonTimeout); h.Ready()[""] < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are ready", h.Ready()[""])
		}
	}
}

// newPool is a host that keeps n sandboxes ready.
func newPool(t testing.TB, d sandboxhost.Driver, n int) *sandboxhost.Host {
	t.Helper()
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: filepath.Join(t.TempDir(), "state"), Driver: d, Limits: sandbox.DefaultLimits(), Pool: n,
		PoolFailed: func(_ string, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	h.FillPools()
	awaitReady(t, h, n)
	return h
}

// TestPool: P17.16. With every driver the directory that was ready is the sandbox's
// own: what is written there is found at its place and by its next life.
func TestPool(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			k.want(t)
			p := newPlace(t, append(k.flags(t), "--pool", "1", "--admin", "tcp://127.0.0.1:0"))
			d := p.serve(t)
			ready := p.ready(t, d)
			a := p.client(t, d)
			r, err := a.Exec(t.Context(), "pwd; mkdir d && echo kept >d/f && cat d/f", sandbox.ExecOptions{})
			if err != nil || string(r.Stdout) != "/workspace\nkept\n" {
				t.Fatalf("%+v, %v", r, err)
			}
			s, err := a.SandboxStatus(t.Context(), "")
			if err != nil || s.Instance != ready {
				t.Errorf("%s was ready, not %+v, %v", ready, s, err)
			}
			if text, err := os.ReadFile(filepath.Join(p.dir, "state", "sandboxes", "acme", "default", "d", "f")); err != nil || string(text) != "kept\n" {
				t.Errorf("%q, %v", text, err)
			}
			if err := a.RemoveSandbox(t.Context(), "default", false); err != nil {
				t.Fatal(err)
			}
			if text, err := p.client(t, d).ReadFile(t.Context(), "d/f", sandbox.ReadOptions{}); err != nil || text != "kept\n" {
				t.Errorf("the next life reads %q, %v", text, err)
			}
			d.end(t, syscall.SIGTERM)
			p.empty(t, "run")
			p.empty(t, "pool")
		})
	}
}

// ready waits for the one instance that is ready and returns its name.
func (p *place) ready(t *testing.T, d *daemon) string {
	t.Helper()
	p.full(t, d, 1)
	names, _ := filepath.Glob(filepath.Join(p.dir, "state", "pool", "*"))
	if len(names) != 1 {
		t.Fatalf("%v are ready", names)
	}
	return filepath.Base(names[0])
}

// full waits until so many are ready, as the metrics have it.
func (p *place) full(t *testing.T, d *daemon, n int) {
	t.Helper()
	for deadline := time.Now().Add(daemonTimeout); ; time.Sleep(5 * time.Millisecond) {
		if strings.Contains(d.metrics(t), fmt.Sprintf("controld_pool_ready_sandboxes{tier=\"\"} %d\n", n)) {
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			t.Fatalf("%d are not ready: %s", n, text)
		}
	}
}

func (d *daemon) metrics(t *testing.T) string {
	t.Helper()
	r, err := http.Get("http://" + strings.TrimPrefix(d.ready.Admin, "tcp://") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (p *place) empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(filepath.Join(p.dir, "state", dir)); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
}

// killRounds is how often TestPoolKilled kills a daemon.
const killRounds = 20

// TestPoolKilled: a daemon is killed at random moments while it gives away what
// was ready. The next one finds each instance as a sandbox's or as nobody's,
// and every file where it was written.
func TestPoolKilled(t *testing.T) {
	for _, name := range []string{"bwrap", "crun"} {
		k := kinds[name]
		t.Run(name, func(t *testing.T) {
			k.want(t)
			p := newPlace(t, append(k.flags(t), "--pool", "3", "--admin", "tcp://127.0.0.1:0"))
			written := make(map[string]bool)
			for round := range killRounds {
				d := p.serve(t)
				p.full(t, d, 3)
				var all sync.WaitGroup
				var mu sync.Mutex
				for i := range 6 {
					box := fmt.Sprintf("s%d-%d", round, i)
					a := p.inBox(t, d, box)
					all.Go(func() {
						if _, err := a.WriteFile(t.Context(), "name", []byte(box), sandbox.WriteOptions{}); err == nil {
							mu.Lock()
							defer mu.Unlock()
							written[box] = true
						}
					})
				}
				time.Sleep(rand.N(60 * time.Millisecond)) // the moment, not a wait for anything
				d.end(t, syscall.SIGKILL)
				all.Wait()
				p.recordsAgree(t)
			}
			d := p.serve(t)
			p.whole(t, d, written)
			d.end(t, syscall.SIGTERM)
			p.empty(t, "run")
			p.empty(t, "pool")
		})
	}
}

// recordsAgree wants no sandbox to have two instances.
func (p *place) recordsAgree(t *testing.T) {
	t.Helper()
	runs, _ := filepath.Glob(filepath.Join(p.dir, "state", "run", "*"))
	of := make(map[string]string)
	for _, run := range runs {
		spec, err := readSpec(run)
		if os.IsNotExist(err) {
			continue // it was about to be written
		}
		if err != nil {
			t.Fatal(err)
		}
		if other := of[spec.Sandbox]; other != "" && spec.Tenant != "" {
			t.Errorf("%s and %s are both %s", other, spec.ID, spec.Sandbox)
		}
		if spec.Tenant != "" {
			of[spec.Sandbox] = spec.ID
		}
	}
}

// whole wants every sandbox to hold its own file, and users of its own.
func (p *place) whole(t *testing.T, d *daemon, written map[string]bool) {
	t.Helper()
	for _, box := range slices.Sorted(maps.Keys(written)) {
		if text, err := p.inBox(t, d, box).ReadFile(t.Context(), "name", sandbox.ReadOptions{}); err != nil || text != box {
			t.Errorf("%s holds %q, %v", box, text, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(p.dir, "state", "ids.json")); err == nil {
		var given map[string]int
		if err := json.Unmarshal(text, &given); err != nil {
			t.Fatal(err)
		}
		whose := make(map[int]string)
		for name, n := range given {
			if other := whose[n]; other != "" {
				t.Errorf("%s and %s have the same users", name, other)
			}
			whose[n] = name
		}
	}
	if len(written) == 0 {
		t.Error("nothing was written at all")
	}
}

// TestPoolRests: what is ready and nobody's costs no time on processors.
func TestPoolRests(t *testing.T) {
	k := kinds["crun"]
	k.want(t)
	p := newPlace(t, append(k.flags(t), "--pool", "1", "--admin", "tcp://127.0.0.1:0"))
	d := p.serve(t)
	id := p.ready(t, d)
	before := cpuOf(t, id)
	time.Sleep(2 * time.Second) // the time that it is measured over
	if used := cpuOf(t, id) - before; used > 20*time.Millisecond {
		t.Errorf("%v in 2 s", used)
	}
	d.end(t, syscall.SIGTERM)
}

// cpuOf is what the processes of an instance have used.
func cpuOf(t *testing.T, id string) time.Duration {
	t.Helper()
	for _, path := range []string{"/sys/fs/cgroup/cpuacct/controld-" + id + "/cpuacct.usage", "/sys/fs/cgroup/controld-" + id + "/cpu.stat"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var n int64
		if _, err := fmt.Sscan(strings.TrimPrefix(string(text), "usage_usec "), &n); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), "usage_usec") {
			return time.Duration(n) * time.Microsecond
		}
		return time.Duration(n)
	}
	t.Fatal("no cgroup of it is found")
	return 0
}

// BenchmarkPool: from the hello of a sandbox without files to its first command
// answered, with one ready, beside one that is started for it.
func BenchmarkPool(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		b.Run(name, func(b *testing.B) {
			driver := k.driver(b)
			pool, plain := newPool(b, driver, 1), newHost(b, driver)
			n := 0
			first := func(h *sandboxhost.Host) error {
				n++
				sb, err := h.Backend(b.Context(), "acme", fmt.Sprintf("s%d", n))
				if err == nil {
					_, err = sb.Exec(b.Context(), "true", sandbox.ExecOptions{})
				}
				return err
			}
			ours := func() error { return first(pool) }
			theirs := func() error { return first(plain) }
			medians(b, ours, theirs, func() { awaitReady(b, pool, 1) })
		})
	}
}
