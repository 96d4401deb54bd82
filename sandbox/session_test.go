package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/controld/controld/sandbox"
)

func TestSegment(t *testing.T) {
	long := strings.Repeat("a", 151)
	for key, want := range map[string]string{
		"abc123": "abc123-1uy364h",
		"":       "-45h",
		"A/b":    "_41_2fb-376ajb",
		"_":      "_5f-3t38",
		"é":      "_c3_a9-3hqmp",
		long:     strings.Repeat("a", 150),
	} {
		got := sandbox.Segment(key)
		if got != want && !(key == long && strings.HasPrefix(got, want)) {
			t.Errorf("Segment(%.20q) = %q, want %q...", key, got, want)
		}
		if len(got) > 255 || strings.ContainsAny(got, "/.\x00") {
			t.Errorf("Segment(%.20q) = %q is no safe name", key, got)
		}
	}
	if got := sandbox.Segment(long); len(got) < 150+16+2 || got[166] != '-' {
		t.Errorf("long segment %q", got)
	}
}

func TestSegmentsNeverCollide(t *testing.T) {
	seen := map[string]string{}
	add := func(key string) {
		s := sandbox.Segment(key)
		if other, ok := seen[s]; ok && other != key {
			t.Fatalf("%.30q and %.30q share %.30q", key, other, s)
		}
		seen[s] = key
	}
	for i := range 256 {
		add(string([]byte{byte(i)}))
		add("_" + fmt.Sprintf("%02x", i))
		add(strings.Repeat("x", 200) + string([]byte{byte(i)}))
		add(strings.Repeat("x", i+2))
	}
	// djb2 of these two is the same.
	add("Ez")
	add("FY")
}

// mkdirAPI is an API of which only Mkdir and Exists work.
type mkdirAPI struct {
	sandbox.API
	mkdirs atomic.Int32
	hold   chan struct{}
	fail   atomic.Bool
	paths  sync.Map
}

func (m *mkdirAPI) Mkdir(ctx context.Context, path string, opts sandbox.MkdirOptions) error {
	m.mkdirs.Add(1)
	if m.hold != nil {
		<-m.hold
	}
	if m.fail.Load() {
		return errors.New("no")
	}
	if !opts.Recursive {
		return errors.New("not recursive")
	}
	return ctx.Err()
}

func (m *mkdirAPI) Exists(_ context.Context, path string, opts sandbox.ExistsOptions) (bool, error) {
	m.paths.Store(path+"|"+opts.Scope, true)
	return true, nil
}

func (m *mkdirAPI) Exec(_ context.Context, _ string, opts sandbox.ExecOptions) (sandbox.ShellResult, error) {
	m.paths.Store("cwd "+opts.Cwd, true)
	return sandbox.ShellResult{}, nil
}

func TestSessionMakesItsDirectoryOnce(t *testing.T) {
	api := &mkdirAPI{hold: make(chan struct{})}
	env := sandbox.NewSessionEnv(api, "/work", "k")
	gaveUp, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := env.Exists(gaveUp, "x", sandbox.ExistsOptions{})
		first <- err
	}()
	for api.mkdirs.Load() == 0 {
	}
	cancel()
	if err := <-first; sandbox.KindOf(err) != sandbox.KindCancelled {
		t.Fatalf("gave up: %v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := env.Exists(t.Context(), "x", sandbox.ExistsOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	close(api.hold)
	wg.Wait()
	if n := api.mkdirs.Load(); n != 1 {
		t.Fatalf("%d mkdirs", n)
	}
}

func TestSessionForgetsAFailedMkdir(t *testing.T) {
	api := &mkdirAPI{}
	api.fail.Store(true)
	env := sandbox.NewSessionEnv(api, "/work", "k")
	if _, err := env.Exists(t.Context(), "x", sandbox.ExistsOptions{}); err == nil {
		t.Fatal("no error")
	}
	api.fail.Store(false)
	if _, err := env.Exists(t.Context(), "x", sandbox.ExistsOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := api.mkdirs.Load(); n != 2 {
		t.Fatalf("%d mkdirs", n)
	}
}

func TestSessionPlacesPaths(t *testing.T) {
	api := &mkdirAPI{}
	env := sandbox.NewSessionEnv(api, "/base/", "k")
	cwd := env.Cwd()
	for _, tc := range []struct{ path, scope, want string }{
		{"a", "", cwd + "/a|"},
		{"../a", "", cwd + "/../a|"},
		{"/abs", "", "/abs|"},
		{"", "", "|"},
		{"a", "/s", "a|/s"},
		{"a", "s", "a|" + cwd + "/s"},
	} {
		env.Exists(t.Context(), tc.path, sandbox.ExistsOptions{Scope: tc.scope})
		if _, ok := api.paths.Load(tc.want); !ok {
			t.Errorf("%q in scope %q: want %q", tc.path, tc.scope, tc.want)
		}
	}
	for cwdOpt, want := range map[string]string{"": cwd, "d": cwd + "/d", "/d": "/d"} {
		env.Exec(t.Context(), "true", sandbox.ExecOptions{Cwd: cwdOpt})
		if _, ok := api.paths.Load("cwd " + want); !ok {
			t.Errorf("exec in %q: want %q", cwdOpt, want)
		}
	}
}

func TestResolverSharesADialAndForgetsAFailedOne(t *testing.T) {
	var dials, closes atomic.Int32
	fail := atomic.Bool{}
	hold := make(chan struct{})
	r := sandbox.NewResolver(sandbox.ResolverConfig{
		Tier: func(tenant string) sandbox.Tier { return sandbox.Tier("tier of " + tenant) },
		Dial: func(ctx context.Context, tenant string, tier sandbox.Tier) (sandbox.Connection, error) {
			dials.Add(1)
			if tier != sandbox.Tier("tier of "+tenant) {
				t.Errorf("tier %q", tier)
			}
			<-hold
			if fail.Load() {
				return sandbox.Connection{}, errors.New("no")
			}
			return sandbox.Connection{API: &mkdirAPI{}, Close: func() error { closes.Add(1); return nil }}, nil
		},
	})
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Resolve(gaveUp, "a"); sandbox.KindOf(err) != sandbox.KindCancelled {
		t.Fatalf("gave up: %v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if api, err := r.Resolve(t.Context(), "a"); err != nil || api == nil {
				t.Error(err)
			}
		})
	}
	close(hold)
	wg.Wait()
	if dials.Load() != 1 {
		t.Fatalf("%d dials", dials.Load())
	}
	fail.Store(true)
	if _, err := r.Resolve(t.Context(), "b"); err == nil {
		t.Fatal("no error")
	}
	fail.Store(false)
	if _, err := r.Resolve(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := r.Evict("a"); err != nil || closes.Load() != 1 {
		t.Fatalf("evict: %v, %d closed", err, closes.Load())
	}
	if err := r.Close(); err != nil || closes.Load() != 2 {
		t.Fatalf("close: %v, %d closed", err, closes.Load())
	}
	if _, err := r.Resolve(t.Context(), "a"); sandbox.KindOf(err) != sandbox.KindUnavailable {
		t.Fatalf("after close: %v", err)
	}
}
