package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost"
	"github.com/controld/controld/sandboxhost/driver/host"
)

// DriverNames are the kinds of isolation that there are, the best first.
func DriverNames() []string { return append([]string(nil), driverNames...) }

// DevDriver is the kind of isolation of serve --dev: one that needs neither
// privilege nor an engine where there is one that can run here, else none;
// refused says why.
func DevDriver(ctx context.Context, agent []string) (name string, refused error) {
	first := driverNames[0]
	if first == host.Name {
		return first, errors.New("this system has no driver but " + first)
	}
	if err := TryDriver(ctx, first, agent); err != nil {
		return host.Name, fmt.Errorf("%s: %w", first, err)
	}
	return first, nil
}

// TryDriver proves that a driver can run here: it has a sandbox for a moment,
// runs a command in it and reads a file. agent is as in [Options].
func TryDriver(ctx context.Context, name string, agent []string) (err error) {
	dir, err := os.MkdirTemp("", "controld-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := Default()
	cfg.Driver, cfg.StateDir = name, dir
	d := &Daemon{cfg: cfg, opts: Options{Agent: agent}, log: newLogger(io.Discard, "json", "error")}
	driver, _, err := d.drivers(cfg)
	if err != nil {
		return err
	}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: dir, Driver: driver, Limits: cfg.Limits()})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, h.Close())
		for _, end := range d.ends {
			end()
		}
	}()
	b, err := h.Backend(ctx, "try", "try")
	if err != nil {
		return err
	}
	return tryBackend(ctx, b)
}

// tryBackend wants a command and a file to be what they should.
func tryBackend(ctx context.Context, b sandbox.Backend) error {
	const word = "it runs"
	r, err := b.Exec(ctx, "printf '"+word+"' >try && cat try", sandbox.ExecOptions{})
	if err != nil {
		return err
	}
	if r.ExitCode != 0 || string(r.Stdout) != word {
		return fmt.Errorf("a command there ended with %d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
	}
	text, err := b.ReadFile(ctx, "try", sandbox.ReadOptions{})
	if err == nil && text != word {
		err = fmt.Errorf("a file there holds %q", text)
	}
	return err
}
