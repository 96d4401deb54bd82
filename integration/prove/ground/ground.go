// Package ground is what provers stand on: the daemon built from the tree, state
// directories with a token, daemons as processes of their own, and clients.
//
// What does not belong here: faults and verdicts.
package ground

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/controld/controld/sandboxhost"
)

// Ground is a directory for one run, with the daemon in it.
type Ground struct{ tree, dir string }

// New builds the daemon of the project in the directory tree. The caller closes
// the ground.
func New(ctx context.Context, tree string) (*Ground, error) {
	dir, err := os.MkdirTemp("", "controld-prove-")
	if err != nil {
		return nil, err
	}
	g := &Ground{tree: tree, dir: dir}
	if err := g.build(ctx, "./cmd/controld", g.Binary()); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Tree is where the project is.
func (g *Ground) Tree() string { return g.tree }

// Close removes everything.
func (g *Ground) Close() error { return os.RemoveAll(g.dir) }

// Binary is the path of the daemon.
func (g *Ground) Binary() string { return filepath.Join(g.dir, "controld") }

// Dir makes a new directory.
func (g *Ground) Dir() (string, error) { return os.MkdirTemp(g.dir, "at-") }

// build builds a command of the tree, as it is released.
func (g *Ground) build(ctx context.Context, pkg, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	cmd.Dir = g.tree
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build of %s: %w: %s", pkg, err, out)
	}
	return nil
}

// Tree finds the project that the working directory is in.
func Tree(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-json=Path,Dir").Output()
	if err != nil {
		return "", fmt.Errorf("this runs in the project's own tree: %w", err)
	}
	var module struct{ Path, Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", err
	}
	if !strings.HasSuffix(module.Path, "/controld") {
		return "", errors.New("this runs in the project's own tree")
	}
	return module.Dir, nil
}

// Place is a state directory with a token, for one daemon after another.
type Place struct {
	ground         *Ground
	dir            string
	Secret, Tokens string
	// Log, where not nil, takes all that daemons here say.
	Log io.Writer
	// Starts starts the processes of daemons here, where it is not
	// [exec.Cmd.Start].
	Starts func(*exec.Cmd) error
}

// Place makes a state directory.
func (g *Ground) Place() (*Place, error) {
	dir, err := g.Dir()
	if err != nil {
		return nil, err
	}
	p := &Place{ground: g, dir: dir, Tokens: filepath.Join(dir, "tokens"), Starts: (*exec.Cmd).Start}
	p.Secret, err = p.Admit(Tenant)
	return p, err
}

// Tenant is whose the clients of a place are, unless they say otherwise.
const Tenant = "prove"

// Admit makes a token of a tenant, which daemons know that start from now on.
func (p *Place) Admit(tenant string) (secret string, err error) {
	secret, line, err := sandboxhost.NewSecret(sandboxhost.Grant{Tenant: tenant, Sandbox: sandboxhost.AnySandbox})
	if err != nil {
		return "", err
	}
	return secret, sandboxhost.AppendToken(p.Tokens, line)
}

// State is the state directory of the daemons here.
func (p *Place) State() string { return filepath.Join(p.dir, "state") }

// Sandboxes is the directory that holds those of the sandboxes.
func (p *Place) Sandboxes() string { return filepath.Join(p.State(), "sandboxes") }

// Cwd is the directory of the default sandbox.
func (p *Place) Cwd() string { return p.CwdOf(Tenant) }

// CwdOf is the directory of a tenant's default sandbox.
func (p *Place) CwdOf(tenant string) string { return filepath.Join(p.Sandboxes(), tenant, "default") }
