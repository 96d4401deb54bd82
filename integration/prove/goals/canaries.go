package goals

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
)

// canaries is G23: secrets that must not turn up anywhere.
func canaries(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G23", Promise: "tokens, keys, contents, environments, inputs and commands turn up in no log, error, metric, name, argument or environment of the daemon's",
		Quick: 150, Lanes: 4,
		Open: opens(g, openHidden),
		Judge: func(t *proof.Tally) []string {
			var missing []string
			for _, way := range secretWays {
				if t.Faults[way.name] == 0 && t.Tries >= 100 {
					missing = append(missing, "never: "+way.name)
				}
			}
			for _, where := range []string{"in the file", "in the command's environment", "in the audit log"} {
				if t.Control[where] == 0 {
					missing = append(missing, "a canary is not found where it must be: "+where)
				}
			}
			return missing
		},
	}
}

// canary begins every secret of the points.
const canary = "CANARY"

// hidden is a daemon that says all it can, under clients with secrets.
type hidden struct {
	place  *ground.Place
	daemon *ground.Daemon
	log    *os.File
	audit  string

	mu      sync.Mutex
	secrets map[string]string // what is none of the points', by what it is
}

func openHidden(ctx context.Context, g *ground.Ground) (*hidden, error) {
	h := &hidden{secrets: map[string]string{}}
	var err error
	if h.place, err = g.Place(); err != nil {
		return nil, err
	}
	beside := filepath.Dir(h.place.Tokens)
	if h.log, err = os.Create(filepath.Join(beside, "log")); err != nil {
		return nil, err
	}
	h.place.Log = h.log
	h.audit = filepath.Join(beside, "audit")
	h.secrets[h.place.Secret] = "the client's token"
	h.daemon, err = h.place.Start(ctx, "--log-level", "debug", "--audit-log", h.audit, "--max-failed-hellos", "0", "--max-failed-tokens", "0")
	return h, err
}

// Try implements [proof.Prover].
func (h *hidden) Try(ctx context.Context, p *proof.Point) error {
	way := secretWays[p.N%len(secretWays)]
	p.Fault(way.name)
	s := &secret{p: p, word: fmt.Sprintf("%s%016x%016x%05x", canary, p.Rand.Uint64(), p.Rand.Uint64(), p.N%(1<<20)), path: fmt.Sprintf("f%d", p.N)}
	var err error
	if s.b, err = h.daemon.Client(adapter.Options{Dial: h.listenIn}); err != nil {
		return err
	}
	defer s.b.Close()
	told := way.do(h, ctx, s)
	defer os.RemoveAll(filepath.Join(h.place.Cwd(), s.path))
	if told != nil && told == s.broke {
		return told
	}
	if told != nil {
		p.State("errors")
		h.search(&p.Tally, p.N, "the error of "+way.name, []byte(told.Error()), nil)
	}
	h.lookAround(&p.Tally, p.N)
	return nil
}

// listenIn dials, and remembers the tokens of transfers.
func (h *hidden) listenIn(ctx context.Context, e dataport.Endpoint) (net.Conn, error) {
	conn, err := dataport.Dialer{}.Dial(ctx, e)
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: conn, h: h}, nil
}

// tapped is a connection whose first words are heard.
type tapped struct {
	net.Conn
	h    *hidden
	once sync.Once
}

// Write implements net.Conn.
func (t *tapped) Write(b []byte) (int, error) {
	t.once.Do(func() {
		if token, is := bytes.CutPrefix(b, []byte("CTRLD1 ")); is && len(token) >= 43 {
			t.h.remember(string(token[:43]), "the token of a transfer")
		}
	})
	return t.Conn.Write(b)
}

func (h *hidden) remember(secret, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.secrets[secret] = what
}

// lookAround looks at what other processes see of the daemon and its keeper.
func (h *hidden) lookAround(t *proof.Tally, point int) {
	for _, pid := range append(check.ChildrenOf(h.daemon.PID(), "__keep"), h.daemon.PID()) {
		for _, what := range []string{"cmdline", "environ"} {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, what))
			h.search(t, point, "the "+what+" of a process of the daemon's", text, nil)
		}
	}
	h.walk(t, point, h.place.Cwd(), false)
}

// walk looks at the names below a directory, and into its files.
func (h *hidden) walk(t *proof.Tally, point int, dir string, into bool) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if into && path == h.place.Sandboxes() {
			return fs.SkipDir
		}
		h.search(t, point, "a name", []byte(d.Name()), nil)
		if text, err := os.ReadFile(path); into && err == nil {
			h.search(t, point, "the file "+d.Name(), text, keysOfRequests)
		}
		return nil
	})
}

// keysOfRequests is what the state directory has to know.
func keysOfRequests(what string) bool { return what == "a request key" }

// search reports what is found of any secret in a text, but for those that
// may be there.
func (h *hidden) search(t *proof.Tally, point int, where string, text []byte, may func(what string) bool) {
	t.Add("searches", 1)
	for _, form := range forms(canary) {
		if bytes.Contains(text, []byte(form)) {
			t.ViolateAt(point, "a canary in %s: %s", where, around(text, form))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for secret, what := range h.secrets {
		if bytes.Contains(text, []byte(secret)) && (may == nil || !may(what)) {
			t.ViolateAt(point, "%s in %s: %s", what, where, around(text, secret))
		}
	}
}

// forms are the ways to write a word: as it is, in hex and in base64, of which
// there are three by where it begins.
func forms(word string) []string {
	all := []string{word, hex.EncodeToString([]byte(word))}
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + word))
		all = append(all, text[(before*8+5)/6:(before+len(word))*8/6]) // the characters that are the word's alone
	}
	return all
}

// around is a text near a word.
func around(text []byte, word string) string {
	at := bytes.Index(text, []byte(word))
	return string(text[max(0, at-80):min(len(text), at+len(word)+80)])
}

// Close implements [proof.Prover].
func (h *hidden) Close(t *proof.Tally) error {
	if h.daemon == nil {
		return nil
	}
	page, err := h.daemon.Metrics(context.Background())
	h.daemon.Stop()
	h.log.Close()
	if err != nil {
		return err
	}
	log, err := os.ReadFile(h.log.Name())
	if err != nil {
		return err
	}
	audit, err := os.ReadFile(h.audit)
	if err != nil {
		return err
	}
	h.search(t, 0, "the metrics", page, nil)
	h.search(t, 0, "the log", log, nil)
	h.search(t, 0, "the audit log", audit, nil)
	h.walk(t, 0, h.place.State(), true)
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Add("secrets", len(h.secrets)+t.Tries)
	t.Add("bytes of logs", len(log)+len(audit))
	t.Fails("in the audit log", bytes.Count(audit, []byte(`"path":"f`))) // what may be told is
	return nil
}
