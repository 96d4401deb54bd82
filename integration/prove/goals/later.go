package goals

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
)

// later is a file that is looked at once more when everything has settled.
type later struct {
	point    int
	path     string
	said     string // of the write
	versions map[string]string
}

func (l later) look(t *proof.Tally) {
	if _, err := check.Version(l.path, l.versions); err != nil {
		t.ViolateAt(l.point, "a write that said %s, a while later: %v", l.said, err)
	}
	os.Remove(l.path)
}

// patient is how many files wait to be looked at.
const patient = 500

// keep remembers a file, and looks at the one that has waited longest.
func (f *faulted) keep(l later, t *proof.Tally) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.late = append(f.late, l); len(f.late) > patient {
		f.late[0].look(t)
		f.late = f.late[1:]
	}
}

// holdings are what a daemon holds.
type holdings struct {
	fds, cgroups, children int
	goroutines             float64
}

// holds counts what a daemon holds now.
func holds(ctx context.Context, d *ground.Daemon) (h holdings, err error) {
	open, err := check.Open(d.PID())
	if err != nil {
		return h, err
	}
	for _, to := range open {
		switch {
		case strings.HasPrefix(to, "pipe:"): // the runtime keeps them for the next splice
		case strings.HasPrefix(to, "/sys/fs/cgroup/"):
			h.cgroups++
		default:
			h.fds++
		}
	}
	h.children = check.Children(d.PID())
	h.goroutines, err = d.Metric(ctx, "go_goroutines")
	return h, err
}

// rest is what a daemon holds before it has done anything but one call.
func rest(ctx context.Context, d *ground.Daemon) (holdings, error) {
	sb, err := newWire(d, plain, plain, noOptions)
	if err != nil {
		return holdings{}, err
	}
	defer sb.close()
	if _, err := sb.Info(ctx); err != nil {
		return holdings{}, err
	}
	return holds(ctx, d)
}

// spare is what a daemon may hold more than at rest: connections of this
// program to its metrics, and what the runtime keeps.
const spare = 5

// spareCgroups is how many descriptors of empty cgroups, two each, a daemon
// keeps for the next commands.
const spareCgroups = 2 * 64

// exceeded tells what a daemon holds more than at rest.
func (h holdings) exceeded(ctx context.Context, d *ground.Daemon) error {
	now, err := holds(ctx, d)
	if err != nil {
		return err
	}
	if live, err := d.Metric(ctx, "controld_transfers_inflight"); err != nil || live > 0 {
		return fmt.Errorf("%.0f transfers live, %v", live, err)
	}
	if now.fds > h.fds+spare || now.cgroups > h.cgroups+spareCgroups || now.children > h.children || now.goroutines > h.goroutines+spare {
		return fmt.Errorf("the daemon holds %+v, at rest %+v", now, h)
	}
	return nil
}
