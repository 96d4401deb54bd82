package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/controld/controld/cmd/internal/agentcmd"
	"github.com/controld/controld/sandboxhost/daemon"
)

// TestMain is the agent of sandboxes too, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == agentWord {
		os.Exit(agentcmd.Main("agent", "test", append(os.Args[:1:1], os.Args[2:]...)))
	}
	os.Exit(m.Run())
}

// smallInput is a tree that the scenario can work on in a moment.
func smallInput(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.go": "package a // TODO(x) y\n", "b/b_test.go": "package b\n", "b/data": strings.Repeat("0123456789", 30000),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// transcriptOf runs the demo and returns what must be the same everywhere.
func transcriptOf(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s\n%s", code, errs.String(), out.String())
	}
	text, _, ok := strings.Cut(out.String(), "\nsummary\n")
	if !ok {
		t.Fatalf("no summary in %s", out.String())
	}
	return text
}

// startDaemon runs a daemon of its own and returns its control URL and token.
func startDaemon(t *testing.T) (url, token string) {
	t.Helper()
	dir := t.TempDir()
	token, tokens, err := daemon.DevSecret(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := daemon.Default()
	cfg.Control, cfg.Data = []string{"tcp://127.0.0.1:0"}, []string{"tcp://127.0.0.1:0"}
	cfg.StateDir, cfg.Tokens = dir, tokens
	ready, drain := make(chan daemon.Ready, 1), make(chan struct{})
	d, err := daemon.New(cfg, daemon.Options{Log: &bytes.Buffer{}, Drain: drain, Ready: func(r daemon.Ready) { ready <- r }})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.Background()) }()
	t.Cleanup(func() {
		close(drain)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case r := <-ready:
		return r.Control[0], token
	case err := <-ended:
		t.Fatal(err)
		return "", ""
	}
}

// isolating are the drivers that can run here, but for those that need an
// engine; root has all of them.
func isolating(t *testing.T) (names []string) {
	for _, name := range []string{"bwrap", "oci"} {
		err := daemon.TryDriver(t.Context(), name, []string{"/proc/self/exe", agentWord})
		switch {
		case err == nil:
			names = append(names, name)
		case os.Geteuid() == 0:
			t.Errorf("%s: %v", name, err)
		default:
			t.Logf("left out: %s: %v", name, err)
		}
	}
	return names
}

func TestTranscriptIsTheSameOnEveryBackend(t *testing.T) {
	input := smallInput(t)
	url, token := startDaemon(t)
	t.Setenv("CONTROLD_TOKEN", token)
	var first string
	for _, backend := range append([]string{"local", "embedded", url}, isolating(t)...) {
		got := transcriptOf(t, "-backend", backend, "-input", input, "-stream", "5000000")
		if first == "" {
			first = got
		}
		if got != first {
			t.Errorf("%s differs:\n%s\nfrom local:\n%s", backend, got, first)
		}
	}
	for _, want := range []string{"error not_found", "error is_directory", "error not_directory", "exit 3 (exited)", "exit 137 (signaled)", "exit 124 (timed_out)", "verified"} {
		if !strings.Contains(first, want) {
			t.Errorf("transcript lacks %q:\n%s", want, first)
		}
	}
}

func TestScriptFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script.json")
	text := `[{"say":"hi","calls":[{"tool":"exec","args":{"command":"echo one"}},{"tool":"nope","args":{}},{"tool":"exec","args":{"comand":"x"}}]}]`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := transcriptOf(t, "-backend", "local", "-input", smallInput(t), "-script", path)
	for _, want := range []string{"exit 0 (exited)", "error unknown_tool", "error malformed_arguments"} {
		if !strings.Contains(got, want) {
			t.Errorf("transcript lacks %q:\n%s", want, got)
		}
	}
}

// completions is a scripted chat-completions server.
type completions struct {
	mu       sync.Mutex
	replies  []string
	requests []map[string]any
	key      string
}

func (c *completions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/chat/completions" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	c.requests = append(c.requests, body)
	c.key = r.Header.Get("Authorization")
	if len(c.replies) == 0 {
		http.Error(w, "no more", http.StatusTeapot)
		return
	}
	fmt.Fprintf(w, `{"choices":[{"message":%s}]}`, c.replies[0])
	c.replies = c.replies[1:]
}

func TestModel(t *testing.T) {
	const parallel = `{"role":"assistant","content":null,"tool_calls":[
		{"id":"1","type":"function","function":{"name":"write_file","arguments":"{\"path\":\"a/b\",\"content\":\"x\"}"}},
		{"id":"2","type":"function","function":{"name":"exec","arguments":"{\"command\":\"echo two\"}"}},
		{"id":"3","type":"function","function":{"name":"exec","arguments":"{\"command\": broken"}},
		{"id":"4","type":"function","function":{"name":"no_such_tool","arguments":""}}]}`
	const second = `{"role":"assistant","content":"reading","tool_calls":[{"id":"5","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"a/b\"}"}}]}`
	srv := &completions{replies: []string{parallel, second, `{"role":"assistant","content":"finished"}`}}
	ts := httptest.NewServer(srv)
	defer ts.Close()
	t.Setenv("OPENAI_API_KEY", "secret key")
	got := transcriptOf(t, "-backend", "local", "-input", smallInput(t), "-model", ts.URL+"/v1")
	for _, want := range []string{"1 bytes written", "exit 0 (exited)", "error malformed_arguments", "error unknown_tool", "1 bytes sha256:", "turn 3: finished"} {
		if !strings.Contains(got, want) {
			t.Errorf("transcript lacks %q:\n%s", want, got)
		}
	}
	if srv.key != "Bearer secret key" || strings.Contains(got, "secret key") {
		t.Errorf("key %q", srv.key)
	}
	// Each call was answered under its own id, in order.
	var ids []string
	for _, m := range srv.requests[1]["messages"].([]any) {
		if id, ok := m.(map[string]any)["tool_call_id"].(string); ok {
			ids = append(ids, id)
		}
	}
	if strings.Join(ids, "") != "1234" {
		t.Errorf("answered %q", ids)
	}
}

func TestModelFailure(t *testing.T) {
	ts := httptest.NewServer(&completions{})
	defer ts.Close()
	var out, errs bytes.Buffer
	code := run([]string{"-backend", "local", "-input", smallInput(t), "-model", ts.URL + "/v1"}, &out, &errs)
	if code != 1 || !strings.Contains(errs.String(), "418") {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
}

func TestUsage(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"-nope"}, &out, &errs); code != 2 {
		t.Errorf("unknown flag: exit %d", code)
	}
	if code := run([]string{"arg"}, &out, &errs); code != 2 {
		t.Errorf("argument: exit %d", code)
	}
	if code := run([]string{"-backend", "tcp://127.0.0.1:1", "-input", smallInput(t)}, &out, &errs); code != 1 {
		t.Errorf("no daemon: exit %d", code)
	}
}
