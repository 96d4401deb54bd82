package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var fence = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

// snippets returns the README's code blocks of a language.
func snippets(t *testing.T, lang string) []string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		if m[1] == lang {
			out = append(out, m[2])
		}
	}
	return out
}

// TestReadmeGo runs the README's Go program against a daemon.
func TestReadmeGo(t *testing.T) {
	blocks := snippets(t, "go")
	if len(blocks) != 1 {
		t.Fatalf("%d Go snippets", len(blocks))
	}
	p := newPlace(t)
	d := p.start(t)
	// A file of the module, so that its imports are found.
	dir, err := os.MkdirTemp(".", "_snippet-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(blocks[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "./"+file)
	cmd.Env = append(os.Environ(), "CONTROLD_ADDR="+d.ready.Control[0], "CONTROLD_TOKEN="+p.secret)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "exit 3: 6\n" {
		t.Fatalf("%q, %v", out, err)
	}
}

// TestReadmeShell runs the README's session with the daemon, line by line. The
// two commands of the first block are the demo and this very test.
func TestReadmeShell(t *testing.T) {
	blocks := snippets(t, "sh")
	if len(blocks) != 2 {
		t.Fatalf("%d shell snippets", len(blocks))
	}
	for _, want := range []string{"go run ./cmd/runtime-demo", "./test.sh"} {
		if !strings.Contains(blocks[0], want) {
			t.Errorf("the first block lacks %q", want)
		}
	}
	session := strings.ReplaceAll(blocks[1], "bin/controld", binary(t))
	session = regexp.MustCompile(`(?m)^go build.*\n`).ReplaceAllString(session, "")
	session = strings.Replace(session, "serve --dev &", "serve --dev --ready-file ready.json & echo $! > pid; until [ -f ready.json ]; do sleep 0.01; done", 1)
	session = strings.Replace(session, "--size 1GiB", "--size 8MiB", 1)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "model.bin"), []byte("a model\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", session+"\nkill -TERM $(cat pid); wait")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir+"/state",
		"CONTROLD_CONTROL=tcp://127.0.0.1:0", "CONTROLD_DATA=tcp://127.0.0.1:0", "CONTROLD_ADMIN=tcp://127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"Linux", "a model", "down "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}
