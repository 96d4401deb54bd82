package drivers

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/image"
	"github.com/controld/controld/sandboxhost/driver/oci"
)

// TestEngineImage: a sandbox of an engine's image that holds nothing but a static busybox.
func TestEngineImage(t *testing.T) {
	for name, engine := range map[string]func(testing.TB) string{"docker": dockerd, "podman": podman} {
		k := kinds[name]
		t.Run(name, func(t *testing.T) {
			k.want(t)
			socket := engine(t)
			script := `tar -C "$0" -c . | docker import - small >/dev/null`
			if err := command([]string{"DOCKER_HOST=unix://" + socket}, "sh", "-c", script, busybox(t)); err != nil {
				t.Fatal(err)
			}
			h := newHostOf(t, newDocker(t, socket, ""), sandboxhost.Box{Image: "small"})
			b, err := h.Backend(t.Context(), "acme", "default")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.WriteFile(t.Context(), "d/f", []byte("text"), sandbox.WriteOptions{}); err != nil {
				t.Error(err)
			}
			r, err := b.Exec(t.Context(), "cat d/f; ls /usr", sandbox.ExecOptions{})
			if err != nil || string(r.Stdout) != "text" || r.ExitCode == 0 {
				t.Errorf("%s%s, %d, %v", r.Stdout, r.Stderr, r.ExitCode, err)
			}
			if _, err := newHostOf(t, newDocker(t, socket, ""), sandboxhost.Box{Image: "127.0.0.1:1/none-such:1"}).Backend(t.Context(), "acme", "default"); sandbox.KindOf(err) != sandbox.KindStartFailed {
				t.Errorf("an image that is not there: %v", err)
			}
		})
	}
}

// imageTar is a file system of a static busybox and some files, as a tar.
func imageTar(t *testing.T) string {
	t.Helper()
	root, at := busybox(t), filepath.Join(t.TempDir(), "root.tar")
	for _, script := range []string{
		"mkdir -p etc home/dev srv/locked tmp && chmod 700 srv/locked && echo of-the-image >etc/issue && echo mine >home/dev/own && chown 1000:1000 home/dev/own",
		"chmod 600 home/dev/own && mkdir bin/raised && cp bin/busybox bin/raised/id && chmod 4755 bin/raised/id && echo theirs >srv/theirs && chmod 600 srv/theirs",
	} {
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", script, out)
		}
	}
	if out, err := exec.Command("tar", "-C", root, "-cf", at, ".").CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	return at
}

// imagePushed is the same as an image in a registry, by its digest.
func imagePushed(t *testing.T, file string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/some/image:1")
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
	return ref.Context().Digest(digest.String()).String()
}

// TestImage: sandboxes of one image, by each way of naming it, see its files as
// those of its users, can change none of them, and nothing of the host's.
func TestImage(t *testing.T) {
	for _, runtimeName := range []string{"runc", "crun", "runsc"} {
		t.Run(runtimeName, func(t *testing.T) {
			kinds[runtimeName].want(t)
			file := imageTar(t)
			store, err := image.NewStore(filepath.Join(t.TempDir(), "images"), 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			dir, err := store.Root(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			d := oci.Driver{Runtime: runtimeName, Agent: agent, Images: store}
			for kind, named := range map[string]string{"tar": file, "registry": imagePushed(t, file), "directory": dir} {
				t.Run(kind, func(t *testing.T) {
					inImage(t, newHostOf(t, d, sandboxhost.Box{Image: named}))
				})
			}
			before, err := os.ReadFile(filepath.Join(dir, "etc/issue"))
			if err != nil || string(before) != "of-the-image\n" {
				t.Errorf("the image itself: %q, %v", before, err)
			}
		})
	}
}

func inImage(t *testing.T, h *sandboxhost.Host) {
	for _, tenant := range []string{"acme", "other"} {
		b, err := h.Backend(t.Context(), tenant, "default")
		if err != nil {
			t.Fatal(err)
		}
		for command, want := range map[string]string{
			"cat /etc/issue /home/dev/own":                          "of-the-image\nmine\n",
			"stat -c %u:%g:%a /etc/issue /home/dev/own /srv/locked": "0:0:644\n1000:1000:600\n0:0:700\n",
			"cat /srv/theirs 2>/dev/null || echo refused":           "refused\n",
			"(echo x >/etc/issue) 2>/dev/null || echo refused":      "refused\n",
			"(echo x >/home/dev/own) 2>/dev/null || echo refused":   "refused\n",
			"/bin/raised/id -u":                                     "1000\n",
			"ls /usr 2>/dev/null || echo none":                      "none\n",
			"echo x >/tmp/x && cat /tmp/x && pwd":                   "x\n/workspace\n",
			"cat /etc/hosts | grep -c localhost":                    "2\n",
		} {
			r, err := b.Exec(t.Context(), command, sandbox.ExecOptions{})
			if err != nil || string(r.Stdout) != want {
				t.Errorf("%s: %q%q, %v; want %q", command, r.Stdout, r.Stderr, err, want)
			}
		}
		if text, err := b.ReadFile(t.Context(), "/etc/issue", sandbox.ReadOptions{}); err != nil || text != "of-the-image\n" {
			t.Errorf("%q, %v", text, err)
		}
		if _, err := b.WriteFile(t.Context(), "/etc/issue", []byte("x"), sandbox.WriteOptions{}); err == nil {
			t.Error("a file of the image was written")
		}
		if _, err := b.WriteFile(t.Context(), tenant, []byte("x"), sandbox.WriteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
