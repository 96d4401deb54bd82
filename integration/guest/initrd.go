package guest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"strings"
)

// The modes of files in an archive, see inode(7).
const (
	directory = 0o40755
	program   = 0o100755
	plain     = 0o100644
)

// archive is an initial file system in the format newc, see
// Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
type archive struct {
	buf  bytes.Buffer
	last int
	dirs map[string]bool
}

func (a *archive) add(name string, mode int, content []byte) {
	if dir := path.Dir(name); dir != "." && !a.dirs[dir] {
		a.dir(dir)
	}
	a.entry(name, mode, content)
}

func (a *archive) dir(name string) {
	if parent := path.Dir(name); parent != "." && !a.dirs[parent] {
		a.dir(parent)
	}
	if a.dirs == nil {
		a.dirs = make(map[string]bool)
	}
	a.dirs[name] = true
	a.entry(name, directory, nil)
}

func (a *archive) entry(name string, mode int, content []byte) {
	a.last++
	fmt.Fprintf(&a.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.last, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.buf.WriteString(name)
	a.buf.WriteByte(0)
	a.pad()
	a.buf.Write(content)
	a.pad()
}

func (a *archive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}

// initrd writes the file system that a guest starts from: its first process,
// the modules to load, and a shell.
func (k *Kernel) initrd(to, init, busybox string, modules ...string) error {
	var a archive
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "data"} {
		a.dir(dir)
	}
	files := map[string]string{"init": init, "bin/busybox": busybox, "bin/sh": busybox, "bin/sleep": busybox}
	for name, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		a.add(name, program, content)
	}
	ordered, err := k.order(modules...)
	if err != nil {
		return err
	}
	a.add("modules/order", plain, []byte(strings.Join(ordered, "\n")))
	for _, name := range ordered {
		content, err := os.ReadFile(k.Modules[name])
		if err != nil {
			return err
		}
		a.add("modules/"+name, plain, content)
	}
	a.add("etc/passwd", plain, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	a.entry("TRAILER!!!", 0, nil)
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := w.Write(a.buf.Bytes()); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
