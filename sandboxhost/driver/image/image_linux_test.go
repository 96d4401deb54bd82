package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/goleak"

	"github.com/controld/controld/sandboxhost/driver/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// archive is a tar of these entries.
func archive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range entries {
		text := h.PAXRecords["text"]
		h.PAXRecords = nil
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		h.Size = int64(len(text))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// file is an entry of an archive.
func file(path, text string) tar.Header {
	return tar.Header{Name: path, PAXRecords: map[string]string{"text": text}}
}

// imageOf makes an image of layers for a platform.
func imageOf(t *testing.T, arch string, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: arch})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// two layers, of which the second takes away and replaces.
func twoLayers(t *testing.T) v1.Image {
	return imageOf(t, runtime.GOARCH,
		archive(t, tar.Header{Name: "bin/", Typeflag: tar.TypeDir}, file("bin/old", "old"), file("bin/kept", "kept"), file("opaque/gone", ""),
			tar.Header{Name: "bin/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}),
		archive(t, file("bin/.wh.old", ""), file("bin/new", "new"), file("opaque/.wh..wh..opq", ""), file("opaque/here", "here"),
			tar.Header{Name: "bin/hard", Typeflag: tar.TypeLink, Linkname: "bin/new"}))
}

// checkTwo wants a root to hold what the two layers together do.
func checkTwo(t *testing.T, root string) {
	t.Helper()
	for path, want := range map[string]string{"bin/kept": "kept", "bin/new": "new", "bin/hard": "new", "opaque/here": "here"} {
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"bin/old", "opaque/gone", "bin/.wh.old", "opaque/.wh..wh..opq"} {
		if _, err := os.Lstat(filepath.Join(root, path)); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(root, "bin/link")); err != nil || to != "/etc/passwd" {
		t.Errorf("link: %q, %v", to, err)
	}
}

// served is a registry, and counts what it is asked.
type served struct {
	host  string
	asked atomic.Int64
	// spoil, where set, changes what a blob is answered with.
	spoil atomic.Pointer[func([]byte) []byte]
	// hold, where set, is waited for before a blob is answered.
	hold atomic.Pointer[chan struct{}]
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			inner.ServeHTTP(w, r)
			return
		}
		if hold := s.hold.Load(); hold != nil {
			select {
			case <-*hold:
			case <-r.Context().Done():
				return
			}
		}
		spoil := s.spoil.Load()
		if spoil == nil {
			inner.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		inner.ServeHTTP(answer, r)
		w.WriteHeader(answer.Code)
		w.Write((*spoil)(answer.Body.Bytes()))
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

// push puts an image there and returns its reference by tag and by digest.
func (s *served) push(t *testing.T, img v1.Image, tag string) (byTag, byDigest string) {
	t.Helper()
	ref, err := name.ParseReference(s.host + "/some/image:" + tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return ref.String(), ref.Context().Digest(digest.String()).String()
}

// needRoot: an unpacked file has the owner that the image says.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("unpacking an image needs root")
	}
}

func open(t *testing.T, dir string, most int64) *image.Store {
	t.Helper()
	s, err := image.NewStore(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		remote.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return s
}

// holds wants nothing in a store's directory but these many roots.
func holds(t *testing.T, dir string, roots int) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != roots {
		t.Errorf("the store holds %v, %v; want %d", all, err, roots)
	}
}

// TestEveryKind: the same two layers by each way of naming them.
func TestEveryKind(t *testing.T) {
	needRoot(t)
	img := twoLayers(t)
	s := serve(t)
	byTag, byDigest := s.push(t, img, "one")
	saved := filepath.Join(t.TempDir(), "saved.tar")
	ref, _ := name.NewTag("saved:one")
	if err := tarball.WriteToFile(saved, ref, img); err != nil {
		t.Fatal(err)
	}
	laid := t.TempDir()
	p, err := layout.Write(laid, empty.Index)
	if err == nil {
		other := imageOf(t, "s390x", archive(t, file("other", "")))
		err = errors.Join(p.AppendImage(other, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "s390x"})),
			p.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})))
	}
	if err != nil {
		t.Fatal(err)
	}
	for kind, named := range map[string]string{"tag": byTag, "digest": byDigest, "docker save": saved, "layout": laid} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			root, err := open(t, dir, 0).Root(t.Context(), named)
			if err != nil {
				t.Fatal(err)
			}
			checkTwo(t, root)
			holds(t, dir, 1)
		})
	}
}

// TestFileSystem: a tar without a manifest is the root itself, anew when it has
// changed; a directory is used as it is.
func TestFileSystem(t *testing.T) {
	needRoot(t)
	at, dir := filepath.Join(t.TempDir(), "root.tar"), t.TempDir()
	s := open(t, dir, 0)
	for _, text := range []string{"first", "second"} {
		h := file("./etc/a", text)
		h.Uid, h.Gid, h.Mode = 7, 8, 0o640
		if err := os.WriteFile(at, archive(t, h), 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := s.Root(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, "etc/a"))
		info, _ := os.Stat(filepath.Join(root, "etc/a"))
		if st := info.Sys().(*syscall.Stat_t); err != nil || string(got) != text || st.Uid != 7 || st.Gid != 8 || info.Mode() != 0o640 {
			t.Errorf("%q, %+v, %v", got, st, err)
		}
		if again, err := s.Root(t.Context(), at); err != nil || again != root {
			t.Errorf("again: %s, %v", again, err)
		}
	}
	holds(t, dir, 2)
	if root, err := s.Root(t.Context(), dir); err != nil || root != dir {
		t.Errorf("a directory: %s, %v", root, err)
	}
}

// TestUnpackedOnce: a digest is fetched once, by whoever asks and whenever; an
// image that is here needs no registry.
func TestUnpackedOnce(t *testing.T) {
	needRoot(t)
	s, dir := serve(t), t.TempDir()
	byTag, byDigest := s.push(t, twoLayers(t), "one")
	store := open(t, dir, 0)
	var wg sync.WaitGroup
	for range 20 {
		for _, named := range []string{byDigest, byTag} {
			wg.Go(func() {
				if root, err := store.Root(t.Context(), named); err != nil {
					t.Error(err)
				} else {
					checkTwo(t, root)
				}
			})
		}
	}
	wg.Wait()
	holds(t, dir, 1)
	asked := s.asked.Load()
	if _, err := open(t, dir, 0).Root(t.Context(), byDigest); err != nil {
		t.Error(err)
	}
	if _, err := store.Root(t.Context(), byTag); err != nil {
		t.Error(err)
	}
	if more := s.asked.Load() - asked; more != 0 {
		t.Errorf("the registry was asked %d times more", more)
	}
}

// TestRefused: what is not what it claims leaves nothing.
func TestRefused(t *testing.T) {
	needRoot(t)
	s := serve(t)
	good := twoLayers(t)
	_, byDigest := s.push(t, good, "one")
	_, foreign := s.push(t, imageOf(t, "s390x", archive(t, file("f", ""))), "foreign")
	_, outside := s.push(t, imageOf(t, runtime.GOARCH, archive(t, file("../outside", "x"))), "outside")
	through := archive(t, tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/"}, file("out/through-a-link", "x"))
	_, link := s.push(t, imageOf(t, runtime.GOARCH, through), "link")
	_, large := s.push(t, imageOf(t, runtime.GOARCH, archive(t, file("f", strings.Repeat("x", 1<<20)))), "large")
	flipped := func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b }
	cut := func(b []byte) []byte { return b[:len(b)/2] }
	for _, c := range []struct {
		what, named string
		spoil       func([]byte) []byte
		want        string
	}{
		{"a flipped bit", byDigest, flipped, ""},
		{"cut", byDigest, cut, ""},
		{"another platform", foreign, nil, "s390x"},
		{"a name that leads out", outside, nil, "outside"},
		{"more than is allowed", large, nil, "more than is allowed"},
		{"an unknown digest", byDigest[:len(byDigest)-64] + strings.Repeat("0", 64), nil, "MANIFEST_UNKNOWN"},
		{"no reference", "UPPER@@", nil, "could not parse"},
		{"no file", "/no/such/file", nil, "no such file"},
		{"no tar", "/proc/self/exe", nil, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			if c.spoil != nil {
				s.spoil.Store(&c.spoil)
				defer s.spoil.Store(nil)
			}
			root, err := open(t, dir, 1<<20).Root(t.Context(), c.named)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %v", root, err)
			}
			holds(t, dir, 0)
		})
	}
	// A link is followed below the root: there is no other.
	dir := t.TempDir()
	root, err := open(t, dir, 0).Root(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "through-a-link")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat("/through-a-link"); err == nil {
		t.Error("an image wrote outside its root")
	}
}

// TestGivingUp: who gives up ends his waiting alone, and closing ends the rest.
func TestGivingUp(t *testing.T) {
	needRoot(t)
	s, dir := serve(t), t.TempDir()
	_, byDigest := s.push(t, twoLayers(t), "one")
	hold := make(chan struct{})
	s.hold.Store(&hold)
	store := open(t, dir, 0)
	gone, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := store.Root(gone, byDigest); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(hold)
	root, err := store.Root(t.Context(), byDigest)
	if err != nil {
		t.Fatal(err)
	}
	checkTwo(t, root)

	never := make(chan struct{})
	s.hold.Store(&never)
	_, other := s.push(t, imageOf(t, runtime.GOARCH, archive(t, file("f", "other"))), "two")
	ended := make(chan error)
	go func() {
		_, err := store.Root(context.Background(), other)
		ended <- err
	}()
	for asked := s.asked.Load(); s.asked.Load() == asked; {
		runtime.Gosched()
	}
	store.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, image.ErrClosed) {
		t.Error(err)
	}
	if _, err := store.Root(t.Context(), byDigest); !errors.Is(err, image.ErrClosed) {
		t.Error(err)
	}
	holds(t, dir, 1)
}

// TestLeftovers: what a store that was killed had begun is removed.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf(".new-%d/d", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, 0)
	holds(t, dir, 0)
}
