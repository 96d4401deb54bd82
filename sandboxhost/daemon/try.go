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

// DevDriver is the kind of isolation of serve --dev: the best that can run
// here. refused says why a better one cannot; it is nil where that was chosen.
func DevDriver(ctx context.Context, agent []string) (name string, refused error) {
	var errs []error
	for _, name := range driverNames {
		if name == host.Name {
			break
		}
		err := TryDriver(ctx, name, agent)
		if err == nil {
			return name, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	return host.Name, errors.Join(errs...)
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
	driver, _, err := d.drivers()
	if err != nil {
		return err
	}
	h, err := sandboxhost.New(sandboxhost.Config{StateDir: dir, Driver: driver, Limits: cfg.Limits()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
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
