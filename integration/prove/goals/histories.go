package goals

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// histories is G18: what clients do to one directory, against a model of it.
func histories(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G18", Promise: "every answer is one that calls, each done at once and at most once, can have led to",
		Quick: 500, Lanes: 4,
		Open: opens(g, openHistories),
		Judge: func(t *proof.Tally) []string {
			var missing []string
			for _, state := range []string{"steps of several calls", "answers that were lost", "answers that were errors"} {
				if t.States[state] < t.Tries/10 {
					missing = append(missing, fmt.Sprintf("%s: %d in %d histories", state, t.States[state], t.Tries))
				}
			}
			return missing
		},
	}
}

// A history has so many calls, of so many clients, and loses so many answers
// at most.
const (
	historyCalls   = 20
	historyClients = 4
	historyLosses  = 3
)

// modelled is a daemon with clients.
type modelled struct {
	daemon  *ground.Daemon
	place   *ground.Place
	clients []*adapter.Sandbox
}

func openHistories(ctx context.Context, g *ground.Ground) (*modelled, error) {
	m := &modelled{}
	var err error
	if m.place, err = g.Place(); err != nil {
		return nil, err
	}
	if m.daemon, err = m.place.Start(ctx, "--reconnect-grace", "1s"); err != nil {
		return nil, err
	}
	for range historyClients {
		sb, err := m.daemon.Client(noOptions)
		if err != nil {
			return nil, err
		}
		m.clients = append(m.clients, sb)
	}
	return m, put(filepath.Join(m.place.Cwd(), "h"), nil)
}

// history is one that is going on.
type history struct {
	m      *modelled
	p      *proof.Point
	dir    string
	may    worlds
	told   []string
	losses int
}

// Try implements [proof.Prover].
func (m *modelled) Try(ctx context.Context, p *proof.Point) error {
	h := &history{m: m, p: p, dir: fmt.Sprintf("h%d", p.N), may: worlds{}}
	h.may.add(world{tree: tree{}})
	if err := os.Mkdir(filepath.Join(m.place.Cwd(), h.dir), 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Join(m.place.Cwd(), h.dir))
	for calls := 0; calls < historyCalls; {
		n, err := h.step(ctx)
		if err != nil {
			return err
		}
		if calls += n; len(h.may) == 0 {
			p.Violate("no order of the calls explains the last step:\n%s", strings.Join(h.told, "\n"))
			return nil
		}
	}
	return h.end()
}

// kinds of calls, and those that take several steps of the kernel's: they go
// alone, and are not lost, but for append, of which it must be told whether it
// was done twice.
var (
	kinds = []string{"write", "upload", "append", "read", "stat", "exists", "mkdir", "rm", "rm -r", "list"}
	alone = []string{"append", "rm -r", "list"}
	sure  = []string{"rm -r", "list", "stat", "exists"}
)

func (h *history) anAction() action {
	a := action{kind: kinds[h.p.Rand.IntN(len(kinds))], path: []string{"a", "b", "d", "d/x", "d/y", "e/z"}[h.p.Rand.IntN(6)]}
	switch a.kind {
	case "write", "upload", "append":
		a.data = strings.Repeat(string(rune('a'+h.p.Rand.IntN(26))), 1+h.p.Rand.IntN(8))
	}
	return a
}

// solitary tells whether a call goes alone: a write that may have to make a
// directory is several steps too.
func (a action) solitary() bool {
	return slices.Contains(alone, a.kind) || a.kind == "write" && parent(a.path) != ""
}

// step makes one call or several at once and asks the model.
func (h *history) step(ctx context.Context) (n int, err error) {
	calls := []answered{{action: h.anAction()}}
	for len(calls) < historyClients && !calls[0].solitary() && h.p.Rand.IntN(2) == 0 {
		if a := h.anAction(); !a.solitary() {
			calls = append(calls, answered{action: a})
		}
	}
	if len(calls) > 1 {
		h.p.State("steps of several calls")
	}
	lose := h.losses < historyLosses && h.p.Rand.IntN(4) == 0 && !slices.Contains(sure, calls[0].kind)
	errs := make([]error, len(calls))
	var all sync.WaitGroup
	for i := range calls {
		w := h.m.clients[i]
		if i == 0 && lose {
			struck, err := h.strike()
			if err != nil {
				return 0, err
			}
			defer struck.close()
			w = struck.Sandbox
		}
		all.Go(func() { calls[i].result, errs[i] = h.call(ctx, w, calls[i].action) })
	}
	all.Wait()
	made := h.known(calls, errs)
	h.may = h.may.after(made)
	return len(calls), nil
}

// strike connects a client whose answers may be lost.
func (h *history) strike() (*wire, error) {
	s := onControl(h.p)
	for silent(s.fault.Kind) { // which would only take longer
		s = onControl(h.p)
	}
	plan := plain
	plan.Fault = s.fault
	h.p.Fault("control " + string(s.fault.Kind))
	return newWire(h.m.daemon, plan, plain, adapter.Options{NoKeys: h.p.Rand.IntN(2) == 0})
}

// known writes the calls down and returns those that may have been done.
func (h *history) known(calls []answered, errs []error) []answered {
	var made []answered
	var said []string
	for i, c := range calls {
		lost := errs[i] != nil && slices.Contains(expected, sandbox.KindOf(errs[i]))
		switch {
		case lost && !open(errs[i]):
			c.result = fmt.Sprintf("not done (%v)", errs[i])
			h.p.State("answers that it was not done")
		case lost:
			c.result = ""
			h.losses++
			h.p.State("answers that were lost")
			made = append(made, c)
		default:
			if errs[i] != nil {
				c.result = failed(sandbox.KindOf(errs[i]))
				h.p.State("answers that were errors")
			}
			made = append(made, c)
		}
		said = append(said, fmt.Sprintf("%s: %s", c.action, c.result))
	}
	h.told = append(h.told, strings.Join(said, " | "))
	return made
}

// call makes a call and returns its result in the words of the model.
func (h *history) call(ctx context.Context, b *adapter.Sandbox, a action) (string, error) {
	path := h.dir + "/" + a.path
	var err error
	switch a.kind {
	case "write":
		_, err = b.WriteFile(ctx, path, []byte(a.data), sandbox.WriteOptions{})
	case "upload":
		_, err = b.WriteFileStream(ctx, path, strings.NewReader(a.data), sandbox.WriteOptions{})
	case "mkdir":
		err = b.Mkdir(ctx, path, sandbox.MkdirOptions{})
	case "rm", "rm -r":
		err = b.Rm(ctx, path, sandbox.RmOptions{Recursive: a.kind == "rm -r"})
	case "append":
		res, err := b.Exec(ctx, "printf %s "+a.data+" >> "+path, sandbox.ExecOptions{})
		if err == nil && res.ExitCode != 0 {
			return "code", nil
		}
		return done, err
	default:
		return ask(ctx, b, a.kind, path)
	}
	return done, err
}

// ask makes a call that changes nothing.
func ask(ctx context.Context, b *adapter.Sandbox, kind, path string) (string, error) {
	switch kind {
	case "read":
		c, err := b.ReadFileBuffer(ctx, path, sandbox.ReadOptions{})
		return done + " " + string(c.Data), err
	case "stat":
		st, err := b.Stat(ctx, path, sandbox.StatOptions{})
		if st.Type == sandbox.TypeFile {
			return fmt.Sprint(done, " file ", st.Size.Value), err
		}
		return fmt.Sprint(done, " ", st.Type), err
	case "exists":
		ok, err := b.Exists(ctx, path, sandbox.ExistsOptions{})
		return fmt.Sprint(done, " ", ok), err
	case "list":
		l, err := b.ReadDir(ctx, path, sandbox.ReadDirOptions{})
		return done + " " + strings.Join(l.Names, " "), err
	}
	panic("no action is called " + kind)
}

// end compares what may be with what is.
func (h *history) end() error {
	is := tree{}
	root := filepath.Join(h.m.place.Cwd(), h.dir)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if is[name] = aDir; d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		is[name] = string(text)
		return err
	})
	if err != nil {
		return err
	}
	want := world{tree: is}.key()
	for _, w := range h.may {
		for key := range (worlds{}).settled(w) {
			if key == want {
				return nil
			}
		}
	}
	h.p.Violate("no order of the calls leads to %s:\n%s", want, strings.Join(h.told, "\n"))
	return nil
}

// settled adds the trees that a world may end as, with nothing pending.
func (ws worlds) settled(w world) worlds {
	ws.add(world{tree: w.tree})
	for i, a := range w.pending {
		t := world{tree{}, slices.Delete(slices.Clone(w.pending), i, i+1)}
		for path, at := range w.tree {
			t.tree[path] = at
		}
		t.tree.apply(a)
		ws.settled(t)
	}
	return ws
}

// Close implements [proof.Prover].
func (m *modelled) Close(*proof.Tally) error {
	for _, sb := range m.clients {
		sb.Close()
	}
	m.daemon.Stop()
	return nil
}
