package drivers

import (
	"testing"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
)

// TestImage: a sandbox of an image that holds nothing but a static busybox.
func TestImage(t *testing.T) {
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
