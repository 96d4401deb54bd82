package goals

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// diskText is the size of the largest files: a few reads and writes of the
// kernel's.
const diskText = 300 << 10

// newDiskTry makes the texts of a point.
func newDiskTry(p *proof.Point) *diskTry {
	return &diskTry{older: content(p.Rand, diskText), newer: content(p.Rand, 1+aSize(p.Rand, diskText))}
}

// aDiskCase chooses a case and what it does not say itself.
func aDiskCase(p *proof.Point) diskCase {
	all := len(diskCases) + 2*len(diskWrites)
	n := p.Rand.IntN(all)
	var c diskCase
	if n < len(diskCases) {
		c = diskCases[n]
	} else {
		n -= len(diskCases)
		c = diskWrites[n/2]
		c.op = []string{"write", "upload"}[n%2]
	}
	c.fault.From = 1 + p.Rand.IntN(c.calls)
	if c.fails {
		c.fault.Errno = numbers[diskErrnos[p.Rand.IntN(len(diskErrnos))]]
	}
	if c.op == "write" && c.fault.Errno == numbers["EBUSY"] {
		c.right = true // it seems to be a mount point, which is written in place
	}
	return c
}

// diskErrnos are what disks fail with.
var diskErrnos = []string{"EIO", "ENOSPC", "EACCES", "EROFS", "EDQUOT", "EBUSY"}

// fail tries an operation on a disk that fails or lies.
func (d *disk) fail(ctx context.Context, p *proof.Point) error {
	c, t := aDiskCase(p), newDiskTry(p)
	if err := t.furnish(d.place.Cwd(), 1); err != nil {
		return err
	}
	var err error
	if t.b, err = d.client("", p.Rand.IntN(2) == 0); err != nil {
		return err
	}
	defer t.b.Close()
	if _, err := t.b.Info(ctx); err != nil {
		return err
	}
	p.Fault(string(c.fault.Call))
	d.fs.Plan(c.fault)
	err = diskOps[c.op](t, ctx, 0)
	struck := d.fs.Struck() > 0
	d.fs.Release()
	judgeDisk(p, c, struck, err)
	d.look(ctx, p, c, t, 0, err)
	d.nothingLeft(ctx, p, c, 1)
	return nil
}

// judgeDisk compares what was said with what happened.
func judgeDisk(p *proof.Point, c diskCase, struck bool, err error) {
	if !struck {
		p.State("not reached")
		if err != nil {
			p.Violate("%s: nothing failed, and it said %v", c, err)
		}
		return
	}
	p.State("struck")
	switch kind := sandbox.KindOf(err); {
	case errors.Is(err, errWrong):
		p.Violate("%s: %v", c, err)
	case err == nil && !c.right:
		p.Violate("%s: a success", c)
	case err == nil:
		p.State("right all the same")
	case errors.Is(err, errExit):
		p.State("exit code")
	case !slices.Contains(diskKinds(c), kind):
		p.Violate("%s: kind %s, want one of %s: %v", c, kind, diskKinds(c), err)
	default:
		p.State("kind " + string(kind))
	}
}

// diskKinds are the kinds of errors that may come of a case.
func diskKinds(c diskCase) []sandbox.Kind {
	switch {
	case c.fault.Errno != 0:
		return []sandbox.Kind{sandbox.KindInternal, sandbox.FromErrno("", "", c.fault.Errno).Kind}
	case c.fault.Short != 0: // such files end for the kernel, where it reads them by itself
		return []sandbox.Kind{sandbox.KindTruncated}
	case c.fault.Grown != 0:
		return []sandbox.Kind{sandbox.KindChanged, sandbox.KindTruncated}
	case c.fault.Drop:
		return []sandbox.Kind{sandbox.KindTruncated}
	}
	return nil
}

// look compares what was said of the files with a number with what is there.
func (d *disk) look(ctx context.Context, p *proof.Point, c diskCase, t *diskTry, i int, err error) {
	cwd := d.place.Cwd()
	version, verr := check.Version(filepath.Join(cwd, name("f", i)), map[string]string{"old": check.Digest(t.older), "new": check.Digest(t.newer)})
	writes := c.op == "write" || c.op == "upload"
	switch {
	case verr != nil:
		p.Violate("%s: %v", c, verr)
	case writes && err == nil && version != "new", writes && err != nil && !open(err) && version != "old", !writes && version != "old":
		p.Violate("%s: the file is the %s one, and it said %v", c, version, err)
	}
	gone := map[string]string{"rm": "victim", "rm tree": "d"}[c.op]
	if gone != "" {
		_, there := os.Lstat(filepath.Join(cwd, name(gone, i)))
		if (err == nil) != (there != nil) && !(err != nil && open(err)) {
			p.Violate("%s: it said %v, and to look at it %v", c, err, there)
		}
	}
	if _, made := os.Lstat(filepath.Join(cwd, name("new", i))); c.op == "mkdir" && (err == nil) != (made == nil) && !(err != nil && open(err)) {
		p.Violate("%s: it said %v, and to look at it %v", c, err, made)
	}
}

// nothingLeft sees that the daemon holds nothing of n tries, and the disk no
// file that nobody knows.
func (d *disk) nothingLeft(ctx context.Context, p *proof.Point, c diskCase, n int) {
	err := check.Eventually(ctx, func() error {
		if err := check.Only(d.place.Cwd(), furnished(n)...); err != nil {
			return err
		}
		return d.atRest.exceeded(ctx, d.daemon)
	})
	if err != nil {
		p.Violate("%s: afterwards %v", c, err)
	}
}

// stalled is a case whose calls stand still, of n tries at once.
func stalled(c diskCase, n int) diskCase {
	c.fault.Stall, c.fault.Times = true, n
	return c
}
