package oci

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/hostroot"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// entries are what the root holds: all of it, or what lies over an image.
func entries(box sandboxhost.Box) []hostroot.Entry {
	resolver := box.Network == sandboxhost.NetworkHost
	if box.Image != "" {
		return hostroot.Over(resolver)
	}
	return hostroot.Entries(resolver)
}

// makeRoot makes the container's root in the stage; image is the directory of
// the image, where there is one. What of the host's is seen there is mounted
// right away, which takes a runtime much longer, but for gVisor, whose own
// kernel has to know of each mount.
func (d Driver) makeRoot(spec sandboxhost.Spec, image, at string) error {
	root := filepath.Join(at, "root")
	if err := makeEntries(root, entries(spec.Box)); err != nil {
		return err
	}
	if image != "" {
		if err := putOver(root, image, spec.IDs, at); err != nil {
			return err
		}
	}
	if d.isGVisor() {
		return nil
	}
	for _, s := range d.shows(spec, at) {
		if err := launch.Show(s.source, filepath.Join(root, s.path), s.writable); err != nil {
			return err
		}
	}
	return nil
}

// putOver lays what is in root over an image, of which nothing is changed, and
// makes both seen there. What root's and others' is of the image is of the same
// users of the sandbox.
func putOver(root, image string, ids sandboxhost.IDs, at string) error {
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, ids.Base, ids.Base)
	})
	if err != nil {
		return err
	}
	lower := filepath.Join(at, "image")
	if err := os.Mkdir(lower, 0o755); err != nil {
		return err
	}
	if err := launch.ShowAs(image, lower, ids.Base, ids.Count); err != nil {
		return err
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	return os.NewSyscallError("mount overlay", unix.Mount("overlay", root, "overlay", flags, "lowerdir="+root+":"+lower))
}

// makeEntries makes what is mounted on, and the files of the root's own.
func makeEntries(root string, all []hostroot.Entry) error {
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	for _, e := range all {
		if err := makeEntry(root, e); err != nil {
			return err
		}
	}
	for _, dir := range []string{hostroot.Link, hostroot.State} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(root, hostroot.Agent), nil, 0o644)
}

func makeEntry(root string, e hostroot.Entry) error {
	at := filepath.Join(root, e.Path)
	switch {
	case e.Link != "":
		return os.Symlink(e.Link, at)
	case e.Text != "":
		return os.WriteFile(at, []byte(e.Text), 0o644)
	case e.Source == "":
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		// runc gives a memory file system the mode of what it is mounted on.
		return unix.Chmod(at, uint32(e.Mode()))
	}
	if info, err := os.Stat(e.Source); err != nil {
		return err
	} else if info.IsDir() {
		return os.Mkdir(at, 0o755)
	}
	return os.WriteFile(at, nil, 0o644)
}
