package goals

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/sandbox"
)

// secret is a word that a point tells the daemon.
type secret struct {
	p          *proof.Point
	b          *adapter.Sandbox
	word, path string
	broke      error // what went wrong with the prover itself
}

// secretWays are ways to tell a daemon a secret; most end with an error, which
// they return.
var secretWays = []struct {
	name string
	do   func(h *hidden, ctx context.Context, s *secret) error
}{
	{"token of a hello", (*hidden).badHello},
	{"token on the data port", (*hidden).badToken},
	{"content", (*hidden).content},
	{"content for a directory", (*hidden).contentForDirectory},
	{"content of an upload that is cut off", (*hidden).cutUpload},
	{"content of the wrong type", (*hidden).wrongType},
	{"line that is no JSON", (*hidden).noJSON},
	{"command, input and environment", (*hidden).command},
	{"environment of a command that does not start", (*hidden).noStart},
	{"environment that is not allowed", (*hidden).badEnvironment},
	{"environment that is too long", (*hidden).longEnvironment},
	{"command over its time", (*hidden).overTime},
	{"request key that comes twice", (*hidden).keyTwice},
}

func (h *hidden) badHello(ctx context.Context, s *secret) error {
	b, err := h.daemon.Client(adapter.Options{Token: s.word})
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.Info(ctx)
	return err
}

func (h *hidden) badToken(_ context.Context, s *secret) error {
	said, err := h.say(h.daemon.Data(), "CTRLD1 "+s.word[:43]+"\n", 1)
	if err != nil {
		s.broke = err
		return err
	}
	return errors.New(said)
}

// say sends a text and returns so many lines of the answer, fewer where the
// daemon closes.
func (h *hidden) say(addr, text string, lines int) (said string, err error) {
	conn, err := net.DialTimeout("tcp", addr, time.Minute)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	for in := bufio.NewReader(conn); lines > 0; lines-- {
		line, err := in.ReadString('\n')
		if said += line; err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return said, nil
}

func (h *hidden) content(ctx context.Context, s *secret) error {
	if _, err := s.b.WriteFile(ctx, s.path, []byte(s.word), sandbox.WriteOptions{}); err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(h.place.Cwd(), s.path)); err == nil && string(text) == s.word {
		s.p.Fails("in the file", 1)
	}
	return nil
}

func (h *hidden) contentForDirectory(ctx context.Context, s *secret) error {
	if err := s.b.Mkdir(ctx, s.path, sandbox.MkdirOptions{}); err != nil {
		return err
	}
	_, err := s.b.WriteFile(ctx, s.path, []byte(s.word), sandbox.WriteOptions{})
	return err
}

// cutUpload has the source of an upload end in an error.
func (h *hidden) cutUpload(ctx context.Context, s *secret) error {
	text := strings.Repeat(s.word, 1000)
	look := &pause{func() { h.lookAround(&s.p.Tally, s.p.N) }}
	broken := io.MultiReader(strings.NewReader(text), look, failing{})
	_, err := s.b.WriteFileStream(ctx, s.path, broken, sandbox.WriteOptions{})
	return err
}

// failing is a reader that fails.
type failing struct{}

// Read implements io.Reader.
func (failing) Read([]byte) (int, error) { return 0, errors.New("the source is gone") }

// lines says hello and one line more, and returns what is said to that.
func (h *hidden) lines(s *secret, line string) error {
	hello := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"token":%q}}`, h.place.Secret)
	said, err := h.say(h.daemon.Control(), hello+"\n"+line+"\n", 2)
	if err != nil {
		s.broke = err
		return err
	}
	return errors.New(said)
}

func (h *hidden) wrongType(_ context.Context, s *secret) error {
	return h.lines(s, fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"write_file","params":{"path":%q,"content":%q}}`, s.path, s.word))
}

func (h *hidden) noJSON(_ context.Context, s *secret) error {
	return h.lines(s, fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"write_file","params":{"path":%q,"content":{"text":"%s}}`, s.path, s.word))
}

// command has a command that fails tell whether it sees its environment.
func (h *hidden) command(ctx context.Context, s *secret) error {
	res, err := s.b.Exec(ctx, ": "+s.word+"; grep -q "+canary+" /proc/$$/environ && echo seen; cat >&2; exit 7",
		sandbox.ExecOptions{Env: map[string]string{"SECRET": s.word}, Stdin: []byte(s.word)})
	if bytes.Equal(res.Stdout, []byte("seen\n")) {
		s.p.Fails("in the command's environment", 1)
	}
	return err
}

func (h *hidden) noStart(ctx context.Context, s *secret) error {
	_, err := s.b.Exec(ctx, ": "+s.word, sandbox.ExecOptions{Cwd: s.path, Env: map[string]string{"SECRET": s.word}, Stdin: []byte(s.word)})
	return err
}

func (h *hidden) badEnvironment(ctx context.Context, s *secret) error {
	_, err := s.b.Exec(ctx, ": "+s.word, sandbox.ExecOptions{Env: map[string]string{"1": s.word, "SECRET": s.word}})
	return err
}

func (h *hidden) longEnvironment(ctx context.Context, s *secret) error {
	_, err := s.b.Exec(ctx, ": "+s.word, sandbox.ExecOptions{Env: map[string]string{"SECRET": strings.Repeat(s.word, 4000)}})
	return err
}

func (h *hidden) overTime(ctx context.Context, s *secret) error {
	_, err := s.b.Exec(ctx, "sleep 60; : "+s.word, sandbox.ExecOptions{Timeout: 50 * time.Millisecond, Env: map[string]string{"SECRET": s.word}})
	return err
}

func (h *hidden) keyTwice(ctx context.Context, s *secret) error {
	key := uuid.NewString()
	h.remember(key, "a request key")
	if _, err := s.b.WriteFile(ctx, s.path, []byte(s.word), sandbox.WriteOptions{RequestKey: key}); err != nil {
		return err
	}
	_, err := s.b.WriteFile(ctx, s.path, []byte(s.word+s.word), sandbox.WriteOptions{RequestKey: key})
	return err
}
