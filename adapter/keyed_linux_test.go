package adapter_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/work"
)

// script is a server that does on each connection what its next line says: to
// each call it gives that answer, or with "cut" none and closes.
type script struct {
	ln    net.Listener
	epoch []string // of each connection, the last for those beyond
	kept  string   // more limits of hello
	lines []string
	all   sync.WaitGroup

	mu   sync.Mutex
	keys []string // of the calls that came
}

func (s *script) start(t *testing.T) string {
	t.Helper()
	var err error
	if s.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.all.Go(func() {
		for n := 0; ; n++ {
			conn, err := s.ln.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() {
				defer conn.Close()
				s.serve(conn, s.epoch[min(n, len(s.epoch)-1)], s.lines[min(n, len(s.lines)-1)])
			})
		}
	})
	t.Cleanup(func() {
		s.ln.Close()
		s.all.Wait()
	})
	return "tcp://" + s.ln.Addr().String()
}

func (s *script) serve(conn net.Conn, epoch, line string) {
	for in := bufio.NewScanner(conn); in.Scan(); {
		var call struct {
			ID     int
			Method string
			Params struct {
				Key string `json:"request_key"`
			}
		}
		json.Unmarshal(in.Bytes(), &call)
		if call.Method == rpc.MethodHello {
			fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,"result":{"protocol":1,"epoch":%q,"cwd":"/","capabilities":["keys"],"limits":{%s}}}`+"\n", call.ID, epoch, s.kept)
			continue
		}
		s.mu.Lock()
		s.keys = append(s.keys, call.Params.Key)
		s.mu.Unlock()
		if line == "cut" {
			return
		}
		fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", call.ID, line)
	}
}

// sent are the keys of the calls that have come.
func (s *script) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys)
}

const (
	made     = `"result":{}`
	draining = `"error":{"code":-32009,"message":"x","data":{"kind":"unavailable","reason":"draining","outcome":"none"}}`
	full     = `"error":{"code":-32009,"message":"x","data":{"kind":"resource_exhausted","limit":1}}`
	noKeys   = `"error":{"code":-32009,"message":"x","data":{"kind":"resource_exhausted","reason":"request_key","outcome":"none"}}`
	past     = `"error":{"code":-32603,"message":"x","data":{"kind":"outcome_unknown","reason":"request_key","outcome":"unknown"}}`
	denied   = `"error":{"code":-32002,"message":"x","data":{"kind":"permission"}}`
)

// TestSendsAgain: P14.14, and what it makes of each answer to a second sending.
func TestSendsAgain(t *testing.T) {
	same, other := []string{"e"}, []string{"e", "f"}
	const durable = `"kept_keys_s":86400`
	for _, tt := range []struct {
		name    string
		epoch   []string
		kept    string
		lines   []string
		kind    sandbox.Kind
		outcome sandbox.Outcome
		calls   int
	}{
		{"the answer", same, "", []string{"cut", made}, "", "", 2},
		{"cut twice", same, "", []string{"cut", "cut", made}, "", "", 3},
		{"an error", same, "", []string{"cut", denied}, sandbox.KindPermission, "", 2},
		{"past", same, "", []string{"cut", past}, sandbox.KindOutcomeUnknown, sandbox.OutcomeUnknown, 2},
		{"a drain says nothing of the first", same, "", []string{"cut", draining}, sandbox.KindConnectionLost, sandbox.OutcomeUnknown, 2},
		{"nor does a full queue", same, "", []string{"cut", full}, sandbox.KindConnectionLost, sandbox.OutcomeUnknown, 2},
		{"nor a full memory", same, "", []string{"cut", noKeys}, sandbox.KindConnectionLost, sandbox.OutcomeUnknown, 2},
		{"a restart that forgets", other, "", []string{"cut", made}, sandbox.KindConnectionLost, sandbox.OutcomeUnknown, 1},
		{"a restart that does not", other, durable, []string{"cut", made}, "", "", 2},
		{"a restart that knows", other, durable, []string{"cut", past}, sandbox.KindOutcomeUnknown, sandbox.OutcomeUnknown, 2},
		{"a drain the first time", same, "", []string{draining}, sandbox.KindUnavailable, sandbox.OutcomeNone, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &script{epoch: tt.epoch, kept: tt.kept, lines: tt.lines}
			a := connect(t, adapter.Options{Control: s.start(t)})
			err := a.Mkdir(t.Context(), "d", sandbox.MkdirOptions{})
			var outcome sandbox.Outcome
			if err != nil {
				outcome = sandbox.AsError("", "", err).Outcome
			}
			if sandbox.KindOf(err) != tt.kind || outcome != tt.outcome {
				t.Errorf("got %v, outcome %q", err, outcome)
			}
			if keys := s.sent(); len(keys) != tt.calls || keys[0] == "" || len(slices.Compact(slices.Clone(keys))) != 1 {
				t.Errorf("%d calls, keys %q", len(keys), keys)
			}
		})
	}
}

// TestSendsWithoutAKeyWhereNoneFits: P14.9, from the other side.
func TestSendsWithoutAKeyWhereNoneFits(t *testing.T) {
	keys, err := work.NewKeys(work.KeysConfig{MaxRemembered: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	st := newStageWith(t, "tcp://127.0.0.1:0", func(c *server.Config, _ sandbox.Backend) { c.Keys = keys })
	a := connect(t, adapter.Options{Control: st.addr.String()})
	for range 3 {
		if _, err := a.Exec(t.Context(), "echo x >> log", sandbox.ExecOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(st.cwd, "log")); err != nil || string(b) != "x\nx\nx\n" {
		t.Errorf("%q, %v", b, err)
	}
	_, err = a.Exec(t.Context(), "echo x >> log", sandbox.ExecOptions{RequestKey: uuid.NewString()})
	wantKind(t, err, sandbox.KindResourceExhausted) // who names a key means it
}

// TestGivesUp: without a server a call ends with its context or the bound, and
// says what is known.
func TestGivesUp(t *testing.T) {
	s := &script{epoch: []string{"e"}, lines: []string{"cut"}}
	url := s.start(t)
	a := connect(t, adapter.Options{Control: url, RetryFor: 200 * time.Millisecond})
	if e := wantKind(t, a.Mkdir(t.Context(), "d", sandbox.MkdirOptions{}), sandbox.KindConnectionLost); e.Outcome != sandbox.OutcomeUnknown {
		t.Errorf("outcome %q", e.Outcome)
	}
	a = connect(t, adapter.Options{Control: url, RetryFor: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if e := wantKind(t, a.Mkdir(ctx, "d", sandbox.MkdirOptions{}), sandbox.KindOutcomeUnknown); e.Outcome != sandbox.OutcomeUnknown {
		t.Errorf("outcome %q", e.Outcome)
	}
	a = connect(t, adapter.Options{Control: url, RetryFor: time.Hour})
	failed := make(chan error, 1)
	go func() { failed <- a.Mkdir(context.Background(), "d", sandbox.MkdirOptions{}) }()
	for {
		if len(slices.Compact(s.sent())) == 3 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	a.Close()
	wantKind(t, <-failed, sandbox.KindConnectionLost)
}

// TestKeysOfTheCaller are used as they are, and refused where there are none.
func TestKeysOfTheCaller(t *testing.T) {
	st := newStage(t, "tcp://127.0.0.1:0")
	key := uuid.NewString()
	for _, o := range []adapter.Options{{}, {NoKeys: true}} {
		o.Control = st.addr.String()
		res, err := connect(t, o).Exec(t.Context(), "echo x >> log; echo $$", sandbox.ExecOptions{RequestKey: strings.ToUpper(key)})
		if err != nil || res.ExitCode != 0 {
			t.Fatal(res, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(st.cwd, "log")); err != nil || string(b) != "x\n" {
		t.Errorf("ran %q, %v", b, err)
	}
	keyless := newStageWith(t, "tcp://127.0.0.1:0", func(c *server.Config, _ sandbox.Backend) { c.Keys = nil })
	for _, b := range []sandbox.Backend{connect(t, adapter.Options{Control: keyless.addr.String()}), st.local} {
		_, err := b.Exec(t.Context(), "true", sandbox.ExecOptions{RequestKey: key})
		wantKind(t, err, sandbox.KindUnsupported)
		_, err = b.WriteFile(t.Context(), "f", nil, sandbox.WriteOptions{RequestKey: key})
		wantKind(t, err, sandbox.KindUnsupported)
		wantKind(t, b.Mkdir(t.Context(), "d", sandbox.MkdirOptions{RequestKey: key}), sandbox.KindUnsupported)
		wantKind(t, b.Rm(t.Context(), "d", sandbox.RmOptions{RequestKey: key}), sandbox.KindUnsupported)
		_, err = b.OpenWrite(t.Context(), "f", sandbox.WriteOptions{RequestKey: key})
		wantKind(t, err, sandbox.KindUnsupported)
		_, err = b.OpenRead(t.Context(), "f", sandbox.ReadOptions{RequestKey: key})
		wantKind(t, err, sandbox.KindUnsupported)
	}
}
