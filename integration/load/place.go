package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/integration/load/worker"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/daemon"
)

// What -full wants at least.
const (
	fullRounds = 5
	fullSize   = 4 << 30
)

// bench is one run of the program.
type bench struct {
	options
	self    string // this program
	binary  string // the daemon
	shm     string // a directory on tmpfs
	temp    string // a directory on the disk
	source  string // a sparse file of size bytes on tmpfs
	pair    string // the certificate and the key of servers
	secret  string
	rival   string  // another tenant's secret
	trial   string  // what runs now
	calling *client // of the small calls

	figures   figures
	servers   map[string]*server
	refused   map[string]error // servers that cannot be had
	engineAt  []string         // where docker's client finds its engine
	container bool             // it runs
	cleanups  []func()

	mu       sync.Mutex
	children []*process
}

// server is a daemon or a reference that listens.
type server struct {
	*process
	addr  string
	admin string
}

func (b *bench) logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (b *bench) note(name string, m measure) { b.figures.add(name, m) }

// newBench makes the directories and builds the daemon.
func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{options: o, servers: map[string]*server{}, refused: map[string]error{}}
	if err := b.prepare(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.shm, err = os.MkdirTemp("/dev/shm", "controld-load-"); err != nil {
		return err
	}
	if b.temp, err = os.MkdirTemp(b.disk, "controld-load-"); err != nil {
		return err
	}
	b.source, b.binary = filepath.Join(b.shm, "source"), filepath.Join(b.temp, "controld")
	b.pair = filepath.Join(b.temp, "identity.pem")
	if err = makeIdentity(b.pair); err != nil {
		return err
	}
	for tenant, secret := range map[string]*string{"load": &b.secret, "rival": &b.rival} {
		var line string
		if *secret, line, err = sandboxhost.NewSecret(sandboxhost.Grant{Tenant: tenant, Sandbox: sandboxhost.AnySandbox}); err != nil {
			return err
		}
		if err = sandboxhost.AppendToken(filepath.Join(b.temp, "tokens"), line); err != nil {
			return err
		}
	}
	return b.build(ctx)
}

// build builds the daemon from the tree that this module stands in.
func (b *bench) build(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/controld/controld").Output()
	if err != nil {
		return fmt.Errorf("the tree is not found (run this in integration/load): %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", b.binary, "./cmd/controld")
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build of the daemon: %w: %s", err, out)
	}
	return nil
}

// fill makes a file that holds memory of its own, no two pages alike.
func fill(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	rand.Read(block)
	for at := int64(0); at < size; at += int64(len(block)) {
		for page := 0; page < len(block); page += 4096 {
			binary.LittleEndian.PutUint64(block[page:], uint64(at+int64(page)))
		}
		if _, err := f.Write(block[:min(int64(len(block)), size-at)]); err != nil {
			return err
		}
	}
	return f.Close()
}

// same tells whether two files hold the same bytes.
func same(path, other string) error {
	a, err := os.Open(path)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := os.Open(other)
	if err != nil {
		return err
	}
	defer b.Close()
	bufA, bufB := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); ; at += int64(len(bufA)) {
		n, errA := io.ReadFull(a, bufA)
		m, errB := io.ReadFull(b, bufB)
		if !bytes.Equal(bufA[:n], bufB[:m]) {
			return fmt.Errorf("%s differs from %s in the MiB at %d", other, path, at)
		}
		if errA != nil || errB != nil {
			if errA != errB {
				return errors.Join(errA, errB)
			}
			return nil
		}
	}
}

func sparse(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return err
	}
	return os.Truncate(path, size)
}

// close ends every child and removes every file.
func (b *bench) close() {
	b.mu.Lock()
	children := b.children
	b.mu.Unlock()
	for _, f := range b.cleanups {
		f()
	}
	var wg sync.WaitGroup
	for _, p := range children {
		wg.Go(p.end)
	}
	wg.Wait()
	for _, dir := range []string{b.shm, b.temp} {
		if dir != "" {
			os.RemoveAll(dir)
		}
	}
}

// daemon starts a daemon for a stack, in the clear or with TLS.
func (b *bench) daemon(ctx context.Context, stack string) (*server, error) {
	dir, err := os.MkdirTemp(b.shm, "daemon-")
	if err != nil {
		return nil, err
	}
	ready := filepath.Join(dir, "ready.json")
	url := "tcp://127.0.0.1:0"
	if stack == worker.ControldTLS {
		url = "tls://127.0.0.1:0"
	}
	argv := []string{b.binary, "serve", "--control", url, "--data", url, "--tls-cert", b.pair, "--tls-key", b.pair,
		"--tokens", filepath.Join(b.temp, "tokens"), "--state-dir", filepath.Join(dir, "state"), "--ready-file", ready,
		"--log-level", "warn", "--max-connections", "8192"}
	if b.prof != "" {
		argv = append(argv, "--admin", "tcp://127.0.0.1:0", "--pprof")
	}
	p, err := b.start("daemon", false, argv...)
	if err != nil {
		return nil, err
	}
	var r daemon.Ready
	err = await(ctx, p, func() bool {
		text, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(text, &r) == nil
	})
	if err != nil {
		return nil, err
	}
	return &server{process: p, addr: r.Control[0], admin: strings.TrimPrefix(r.Admin, "tcp://")}, nil
}

// await polls until a child is ready.
func await(ctx context.Context, p *process, ready func() bool) error {
	deadline := time.Now().Add(30 * time.Second)
	for !ready() {
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended: %s", p.name, p.stderr)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready: %s", p.name, p.stderr)
		}
	}
	return nil
}

// goPeer starts a reference of package peer.
func (b *bench) goPeer(kind string) (*server, error) {
	p, err := b.start(kind, true, b.self, "peer", kind, b.pair)
	if err != nil {
		return nil, err
	}
	defer time.AfterFunc(30*time.Second, func() { p.cmd.Process.Kill() }).Stop()
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", kind, err, p.stderr)
	}
	return &server{process: p, addr: strings.TrimSpace(line)}, nil
}

// settle makes the source, behind the groups that need its memory, and the comb.
func (b *bench) settle(ctx context.Context) error {
	if _, err := os.Stat(b.source); err != nil {
		if err := fill(b.source, b.size); err != nil {
			return err
		}
	}
	comb := filepath.Join(b.shm, "comb")
	if _, err := os.Stat(comb); err == nil {
		return nil
	}
	return makeComb(ctx, comb, 3*b.size)
}

// makeComb leaves size bytes of free memory, or what path has room for, in
// pieces of less than 2 MiB, by a file that keeps one page of each 256 KiB: as
// much as the cases write at a time and leave in the page caches of disks.
//
// A guest may report larger pieces to its hypervisor as free, which takes their
// pages away (Linux, mm/page_reporting.c), and whoever is given such a piece
// again pays for its way back: six times what a page costs otherwise, now and
// then, for any case. From the comb every case gets memory that is there.
func makeComb(ctx context.Context, path string, size int64) error {
	const tooth, gap = 4 << 10, 256 << 10
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for at := int64(0); at < size && ctx.Err() == nil; at += int64(len(buf)) {
		if _, err := f.Write(buf); errors.Is(err, syscall.ENOSPC) {
			size = at
		} else if err != nil {
			return err
		}
	}
	for at := int64(0); at < size && ctx.Err() == nil; at += gap {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at+tooth, gap-tooth); err != nil {
			return fmt.Errorf("holes in %s: %w", path, err)
		}
	}
	return ctx.Err()
}

// fileSystem names the type of the file system that holds path.
func fileSystem(path string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return err.Error()
	}
	switch st.Type {
	case 0xef53:
		return "ext4"
	case 0x01021994:
		return "tmpfs"
	case 0x58465342:
		return "xfs"
	case 0x794c7630:
		return "overlayfs"
	}
	return fmt.Sprintf("file system %#x", st.Type)
}
