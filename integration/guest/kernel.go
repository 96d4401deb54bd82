package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ErrMissing says that there is no QEMU or no kernel here, and names it.
var ErrMissing = errors.New("missing")

// kernelPackage depends on the current kernel package of Debian.
const kernelPackage = "linux-image-cloud-amd64"

// Kernel is a kernel with its modules, unpacked but not installed.
type Kernel struct {
	// Image is the path of the compressed kernel.
	Image string
	// Modules maps a module's name, with underscores, to its file.
	Modules map[string]string
}

// FindKernel returns Debian's cloud kernel from the folder that the variable
// CONTROLD_GUEST_KERNEL names, else from the user's cache. Where it is not in
// there, root downloads it; for anybody else it is [ErrMissing].
func FindKernel(ctx context.Context) (*Kernel, error) {
	dir := os.Getenv("CONTROLD_GUEST_KERNEL")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("%w: a cache folder: %w", ErrMissing, err)
		}
		dir = filepath.Join(cache, "controld-guest")
	}
	if k, err := openKernel(dir); err == nil {
		return k, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: the unpacked Debian package that %s depends on, in %s", ErrMissing, kernelPackage, dir)
	}
	if err := download(ctx, dir); err != nil {
		return nil, fmt.Errorf("%w: Debian package of %s: %w", ErrMissing, kernelPackage, err)
	}
	return openKernel(dir)
}

func openKernel(dir string) (*Kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return nil, fmt.Errorf("%d kernels in %s", len(images), dir)
	}
	k := &Kernel{Image: images[0], Modules: make(map[string]string)}
	err = filepath.WalkDir(filepath.Join(dir, "lib", "modules"), func(path string, d fs.DirEntry, err error) error {
		if name, is := strings.CutSuffix(filepath.Base(path), ".ko"); is && err == nil {
			k.Modules[moduleName(name)] = path
		}
		return err
	})
	return k, err
}

func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// download fetches the package and unpacks it into dir, whole or not at all.
func download(ctx context.Context, dir string) error {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", kernelPackage).Output()
	if err != nil {
		return err
	}
	name := regexp.MustCompile(`Depends: (linux-image-[0-9]\S*)`).FindSubmatch(out)
	if name == nil {
		return errors.New("no kernel in what it depends on")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "controld-guest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	script := `chmod 755 . && apt-get download "$1" && dpkg -x ./*.deb tree`
	cmd := exec.CommandContext(ctx, "sh", "-ec", script, "sh", string(name[1]))
	cmd.Dir = tmp
	cmd.WaitDelay = 5 * time.Second // what the shell started may hold its output
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	os.RemoveAll(dir)
	return os.Rename(filepath.Join(tmp, "tree"), dir)
}

var moduleDepends = regexp.MustCompile(`\x00depends=([^\x00]*)\x00`)

// order returns the named modules and those that they need, in an order in
// which they can be loaded.
func (k *Kernel) order(names ...string) ([]string, error) {
	var ordered []string
	var add func(name string) error
	add = func(name string) error {
		if name = moduleName(name); slices.Contains(ordered, name) {
			return nil
		}
		content, err := os.ReadFile(k.Modules[name])
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		if m := moduleDepends.FindSubmatch(content); m != nil && len(m[1]) > 0 {
			for need := range strings.SplitSeq(string(m[1]), ",") {
				if err := add(need); err != nil {
					return err
				}
			}
		}
		ordered = append(ordered, name)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}
