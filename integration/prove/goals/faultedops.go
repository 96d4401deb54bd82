package goals

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/controld/controld/integration/faultproxy"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// largest is the size in bytes of the largest file here.
const largest = 1 << 20

// path is the file of a point, as the machine sees it.
func (f *faulted) path(p *proof.Point) (name, path string) {
	name = fmt.Sprintf("f%d", p.N)
	return name, filepath.Join(f.place.Cwd(), name)
}

// put makes the sandbox's own directory where there is none yet, and a file.
func put(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

func (f *faulted) read(ctx context.Context, p *proof.Point) error {
	size := aSize(p.Rand, largest)
	data := content(p.Rand, size)
	name, path := f.path(p)
	if err := put(path, data); err != nil {
		return err
	}
	defer os.Remove(path)
	s := aStrike(p, faultproxy.Down, size)
	w, ctx, cancel, err := f.wire(ctx, p, s)
	if err != nil {
		return err
	}
	defer w.close()
	defer cancel()
	defer f.killStruck(ctx, p, w)()
	got, err := readAll(ctx, w, name)
	counted(p, "read", w, s, err)
	if err == nil && !bytes.Equal(got, data) {
		p.Violate("a read of %d bytes succeeded with %d other ones", size, len(got))
	}
	cutAt(p, w, s, size)
	wrongKind(p, "read", err)
	return nil
}

func readAll(ctx context.Context, b sandbox.API, name string) ([]byte, error) {
	s, err := b.ReadFileStream(ctx, name, sandbox.ReadOptions{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return io.ReadAll(s)
}

// cutAt counts where in a file of size bytes its connection was cut.
func cutAt(p *proof.Point, w *wire, s strike, size int64) {
	if s.plane != "data" || !w.struck() {
		return
	}
	head := int64(welcome)
	if s.fault.Direction == faultproxy.Up {
		head = preamble
	}
	p.Cut(s.fault.At-head, size)
}

func (f *faulted) write(ctx context.Context, p *proof.Point) error {
	size := aSize(p.Rand, largest)
	older, newer := content(p.Rand, aSize(p.Rand, 4096)), content(p.Rand, size)
	name, path := f.path(p)
	if err := put(path, older); err != nil {
		return err
	}
	s := aStrike(p, faultproxy.Up, size)
	w, ctx, cancel, err := f.wire(ctx, p, s)
	if err != nil {
		return err
	}
	defer w.close()
	defer cancel()
	defer f.killStruck(ctx, p, w)()
	_, err = w.WriteFileStream(ctx, name, bytes.NewReader(newer), sandbox.WriteOptions{})
	counted(p, "write", w, s, err)
	cutAt(p, w, s, size)
	wrongKind(p, "write", err)
	l := later{point: p.N, path: path, said: fmt.Sprint(err), versions: map[string]string{"old": check.Digest(older), "new": check.Digest(newer)}}
	switch {
	case err == nil:
		delete(l.versions, "old")
	case !open(err):
		delete(l.versions, "new")
	}
	if _, err := check.Version(path, l.versions); err != nil {
		p.Violate("a write of %d bytes that said %s: %v", size, l.said, err)
	}
	f.keep(l, &p.Tally)
	return nil
}

// exec runs a command that may run once at most.
func (f *faulted) exec(ctx context.Context, p *proof.Point) error {
	name, path := f.path(p)
	if err := put(path, nil); err != nil {
		return err
	}
	defer os.Remove(path)
	output := strings.Repeat(strconv.Itoa(p.N), 1+p.Rand.IntN(100))
	s := onControl(p)
	w, ctx, cancel, err := f.wire(ctx, p, s)
	if err != nil {
		return err
	}
	defer w.close()
	defer cancel()
	defer f.killStruck(ctx, p, w)()
	res, err := w.Exec(ctx, fmt.Sprintf("echo ran >> %s; printf %%s %s; exit 7", name, output), sandbox.ExecOptions{})
	counted(p, "exec", w, s, err)
	wrongKind(p, "exec", err)
	log, readErr := os.ReadFile(path)
	if readErr != nil {
		return readErr
	}
	times := strings.Count(string(log), "ran\n")
	switch {
	case times > 1:
		p.Violate("a command ran %d times: %v", times, err)
	case err == nil && (times != 1 || string(res.Stdout) != output || res.ExitCode != 7):
		p.Violate("a command that ran %d times succeeded with code %d and %q, want %q", times, res.ExitCode, res.Stdout, output)
	case err != nil && !open(err) && sandbox.KindOf(err) != sandbox.KindCancelled && times > 0:
		p.Violate("a command ran and said %v", err)
	}
	return nil
}

// daemonKilled has one of the other strikes end the daemon.
func (f *faulted) daemonKilled(ctx context.Context, p *proof.Point) error {
	u, err := f.mortal.take(ctx)
	if err != nil {
		return err
	}
	defer f.mortal.give(u)
	m := &faulted{daemon: u.daemon, place: u.place, kills: true}
	err = []func(context.Context, *proof.Point) error{m.read, m.write, m.exec}[p.Rand.IntN(3)](ctx, p)
	if u.daemon = m.daemon; err != nil {
		return err
	}
	for _, l := range m.late {
		l.look(&p.Tally)
	}
	if err := check.Eventually(ctx, func() error { return check.Only(u.place.Cwd()) }); err != nil {
		p.Violate("behind the kill of a daemon: %v", err)
	}
	return nil
}

// killStruck kills the daemon once the connection of a client was struck, and
// starts another one that the client finds in its place. What it returns is
// called behind the operation and waits for that.
func (f *faulted) killStruck(ctx context.Context, p *proof.Point, w *wire) (wait func()) {
	if !f.kills {
		return func() {}
	}
	over, killed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(killed)
		for !w.struck() {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
		f.daemon.Kill()
		if next, err := f.place.Start(context.WithoutCancel(ctx)); err == nil {
			f.daemon = next
			w.daemon.Store(next)
		}
	}()
	return func() {
		close(over)
		<-killed
		if w.struck() {
			p.Fault("daemon kill")
		}
	}
}

// killed runs a command whose shell is killed.
func (f *faulted) killed(ctx context.Context, p *proof.Point) error {
	name, path := f.path(p)
	if err := put(path, nil); err != nil {
		return err
	}
	defer os.Remove(path)
	sb, err := newWire(f.daemon, plain, plain, noOptions)
	if err != nil {
		return err
	}
	defer sb.close()
	killed := make(chan error, 1)
	go func() { killed <- killWritten(ctx, path) }()
	res, err := sb.Exec(ctx, "echo $$ > "+name+"; exec sleep 60", sandbox.ExecOptions{})
	if kerr := <-killed; kerr != nil {
		return kerr
	}
	p.Fault("process kill")
	p.State("struck")
	if err != nil || res.Reason != sandbox.ReasonSignaled || res.Signal != "KILL" || res.ExitCode != 137 {
		p.Violate("a command that was killed: %+v, %v", res, err)
	}
	return nil
}

// killWritten kills the process whose id stands in a file, once it does.
func killWritten(ctx context.Context, path string) error {
	return check.Eventually(ctx, func() error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pid, whole := strings.CutSuffix(string(text), "\n")
		if !whole {
			return fmt.Errorf("%s names no process", path)
		}
		n, err := strconv.Atoi(pid)
		if err != nil {
			return err
		}
		return syscall.Kill(n, syscall.SIGKILL)
	})
}
