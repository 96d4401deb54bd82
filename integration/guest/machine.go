package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Lab makes machines. Its files are in a folder of the caller's.
type Lab struct {
	dir, qemu string
	kernel    *Kernel
	initrd    string
}

// NewLab builds what machines start from, in dir. Where QEMU, a static busybox
// or the kernel is not there it is [ErrMissing].
func NewLab(ctx context.Context, dir string) (*Lab, error) {
	l := &Lab{dir: dir, initrd: filepath.Join(dir, "initrd")}
	var err error
	if l.qemu, err = exec.LookPath("qemu-system-x86_64"); err != nil {
		return nil, fmt.Errorf("%w: qemu-system-x86_64 (Debian package qemu-system-x86)", ErrMissing)
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return nil, fmt.Errorf("%w: mkfs.ext4 (Debian package e2fsprogs)", ErrMissing)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("%w: busybox (Debian package busybox-static)", ErrMissing)
	}
	if l.kernel, err = FindKernel(ctx); err != nil {
		return nil, err
	}
	init := filepath.Join(dir, "init")
	build := exec.CommandContext(ctx, "go", "build", "-o", init, "github.com/controld/controld/integration/guest/inside")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return l, l.kernel.initrd(l.initrd, init, busybox, "virtio_pci", "virtio_blk", "veth")
}

// NewDisk makes a disk with an empty ext4 file system and returns its path.
func (l *Lab) NewDisk(ctx context.Context, name string, size int64) (string, error) {
	path := filepath.Join(l.dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return "", err
	}
	if err := os.Truncate(path, size); err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return path, nil
}

// Machine is a machine that runs.
type Machine struct {
	cmd    *exec.Cmd
	lines  chan string
	tail   []string // of the console, for errors
	exited chan struct{}
}

// Boot starts a machine in a role, with a disk where path names one. The
// caller ends it with Kill, however it ends. ctx ends it as Kill does.
func (l *Lab) Boot(ctx context.Context, disk, role string, args ...string) (*Machine, error) {
	line := "console=ttyS0 panic=-1 reboot=t quiet tsc=unstable role=" + strings.Join(append([]string{role}, args...), ",")
	argv := []string{"-accel", "tcg", "-M", "q35", "-cpu", "max", "-m", "384M", "-nodefaults", "-no-user-config", "-nographic",
		"-no-reboot", "-serial", "stdio", "-monitor", "none", "-kernel", l.kernel.Image, "-initrd", l.initrd, "-append", line}
	if disk != "" {
		argv = append(argv, "-drive", "file="+disk+",format=raw,if=none,id=disk", "-device", "virtio-blk-pci,drive=disk")
	}
	m := &Machine{cmd: exec.CommandContext(ctx, l.qemu, argv...), lines: make(chan string, 1024), exited: make(chan struct{})}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go m.read(out)
	return m, nil
}

// read takes the console, which mixes what the program says with what the
// kernel does.
func (m *Machine) read(out io.Reader) {
	defer close(m.exited)
	defer m.cmd.Wait()
	defer close(m.lines)
	for in := bufio.NewScanner(out); in.Scan(); {
		m.lines <- strings.TrimSpace(in.Text())
	}
}

// Said is what the program inside says next; its words begin with the first
// that is not the mark of its lines.
func (m *Machine) Said() ([]string, error) {
	for line := range m.lines {
		if _, said, ok := strings.Cut(line, Mark+" "); ok {
			return strings.Fields(said), nil
		}
		if m.tail = append(m.tail, line); len(m.tail) > 20 {
			m.tail = m.tail[1:]
		}
	}
	return nil, errors.New("the machine ended; its last words: " + strings.Join(m.tail, " | "))
}

// Mark begins the lines of the program inside.
const Mark = "@@"

// Kill pulls the plug: what the machine had not written to its disk is gone.
// It waits until the machine is gone and may be called twice.
func (m *Machine) Kill() {
	m.cmd.Process.Kill()
	for range m.lines { // so that the reader ends
	}
	<-m.exited
}
