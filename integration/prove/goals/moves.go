package goals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// move is a transfer that stands in its middle until a gate is opened.
type move struct {
	up           bool
	path         string
	older, newer []byte // newer of an upload
	err          error
}

// readSize is the size of what is read: more than lies in any socket.
const readSize = 24 << 20

// newMove makes the i-th transfer of a point: one of ten reads.
func newMove(p *proof.Point, cwd string, i int) *move {
	m := &move{up: i%10 != 0, path: filepath.Join(cwd, fmt.Sprintf("f%d", i))}
	if m.up {
		m.older, m.newer = content(p.Rand, 1000), content(p.Rand, 1000+p.Rand.Int64N(100<<10))
	}
	return m
}

// String says what it is.
func (m *move) String() string {
	if m.up {
		return fmt.Sprintf("upload of %d bytes", len(m.newer))
	}
	return "read"
}

func (m *move) furnish() error {
	err := put(m.path, m.older)
	if !m.up {
		err = errors.Join(err, os.Truncate(m.path, readSize))
	}
	return err
}

// run transfers one half, calls middle, and the other half when the gate is
// opened.
func (m *move) run(ctx context.Context, b sandbox.API, middle func(), gate <-chan struct{}) error {
	half := func() {
		middle()
		<-gate
	}
	name := filepath.Base(m.path)
	if m.up {
		at := len(m.newer) / 2
		halves := io.MultiReader(bytes.NewReader(m.newer[:at]), &pause{half}, bytes.NewReader(m.newer[at:]))
		_, err := b.WriteFileStream(ctx, name, halves, sandbox.WriteOptions{})
		return err
	}
	s, err := b.ReadFileStream(ctx, name, sandbox.ReadOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := io.CopyN(io.Discard, s, readSize/100); err != nil {
		return err
	}
	half()
	n, err := io.Copy(io.Discard, s)
	if err == nil && n != readSize-readSize/100 {
		return errWrong
	}
	return err
}

// pause is a reader of nothing that takes its time.
type pause struct{ wait func() }

// Read implements io.Reader.
func (p *pause) Read([]byte) (int, error) {
	p.wait()
	return 0, io.EOF
}

// command runs one that would outlive the daemon if it could, and notes its
// processes.
func (l *load) command(ctx context.Context) error {
	l.all.Go(func() {
		l.client.Exec(ctx, "setsid "+stay+" & "+stay+" & wait", sandbox.ExecOptions{})
	})
	return check.Eventually(ctx, func() error {
		text, _ := os.ReadFile(filepath.Join(l.place.Cwd(), "pids"))
		if l.pids = strings.Fields(string(text)); len(l.pids) < 2 {
			return errors.New("the command has not begun")
		}
		return nil
	})
}

// look compares what was said with what is there, and sees that there is
// nothing else. What was not said yet is neither.
func (l *load) look(all bool) error {
	names := []string{"pids"}
	for _, m := range l.moves {
		names = append(names, filepath.Base(m.path))
		if !m.up {
			continue
		}
		version, err := check.Version(m.path, map[string]string{"old": check.Digest(m.older), "new": check.Digest(m.newer)})
		switch {
		case err != nil:
			l.p.Violate("%s: %v", m, err)
		case all && version != "new":
			l.p.Violate("%s: the file is the %s one, and it said %v", m, version, m.err)
		case !all && version != "old":
			l.p.Violate("%s: half of it was sent, and the file is the %s one", m, version)
		}
	}
	if err := check.Only(l.place.Cwd(), names...); err != nil {
		l.p.Violate("%v", err)
	}
	return nil
}
