package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/daemon"
)

// audited reads an audit log.
func audited(t *testing.T, path string) (lines []obj, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var o obj
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		lines = append(lines, o)
	}
	return lines, string(b)
}

// TestAudit: P13.10. Who did what is told, and nothing of what it was done with.
func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	d := startWire(t, func(c *daemon.Config) { c.AuditLog = path })
	canaries := []string{"canary-content", "canary-env", "canary-stdin", "canary-command", "canary-token"}
	var told strings.Builder
	c := d.login()
	told.WriteString(d.dial().fails("hello", obj{"protocol": 1, "token": "canary-token"}, -32001, "unauthenticated").line)
	c.writeFile("small", "canary-content")
	c.fails("stat", obj{"path": "none"}, -32003, "not_found")
	c.sh("cat >/dev/null; : canary-command; printf canary-out", obj{"env": obj{"SECRET": "canary-env"}, "stdin": text("canary-stdin")})
	told.WriteString(c.fails("exec", obj{"command": "canary-command", "cwd": "none"}, -32003, "not_found").line)
	told.WriteString(c.fails("exec", obj{"command": "true # canary-command", "env": obj{"1": "canary-env"}}, -32602, "invalid_params").line)
	k := c.mintWrite("streamed")
	k.open("canary-content")
	k.commit(14)
	lost := c.mintWrite("lost")
	lost.open("canary-content").reset()
	told.WriteString(lost.commit(99).line)
	_, line := d.answerTo("CTRLD1 " + strings.Repeat("A", 43) + "\n")
	told.WriteString(line)
	told.WriteString(metricsText(t, d))
	d.stop()

	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	lines, all := audited(t, path)
	secrets := append(canaries, "canary-out", wireSecret, k.token, lost.token)
	for where, text := range map[string]string{"the audit log": all, "the log": d.log.String(), "errors and metrics": told.String()} {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%q stands in %s", secret, where)
			}
		}
	}
	find := func(want obj) obj {
		t.Helper()
		for _, l := range lines {
			match := true
			for k, v := range want {
				match = match && l[k] == v
			}
			if match {
				return l
			}
		}
		t.Fatalf("no line %v in\n%s", want, all)
		return nil
	}
	find(obj{"event": "hello", "outcome": "unauthenticated", "source": "127.0.0.1"})
	in := find(obj{"event": "hello", "outcome": "ok", "tenant": "acme", "sandbox": "default"})
	who, _ := in["who"].(string)
	if !strings.HasPrefix(who, "token ") || len(who) != len("token ")+8 {
		t.Errorf("who is %q", who)
	}
	find(obj{"method": "write_file", "path": "small", "bytes": 14.0, "outcome": "ok", "who": who})
	find(obj{"method": "stat", "path": "none", "outcome": "not_found"})
	exec := find(obj{"method": "exec", "outcome": "ok", "tenant": "acme", "bytes": 10.0})
	if hash, _ := exec["command_sha256"].(string); len(hash) != 16 || exec["command_bytes"] != 51.0 || exec["duration_s"].(float64) <= 0 {
		t.Errorf("got %v", exec)
	}
	find(obj{"event": "call", "method": "write_file_stream", "path": "streamed", "transfer": k.id})
	find(obj{"event": "transfer", "method": "write_file_stream", "path": "streamed", "transfer": k.id, "bytes": 14.0, "outcome": "ok", "who": who})
	if l := find(obj{"event": "transfer", "transfer": lost.id}); l["outcome"] == "ok" {
		t.Errorf("got %v", l)
	}
}

func metricsText(t *testing.T, d *wireDaemon) string {
	t.Helper()
	resp, err := http.Get("http://" + strings.TrimPrefix(d.ready.Admin, "tcp://") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAuditNamesCertificates: P13.10.
func TestAuditNamesCertificates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	x := startTrust(t, true, func(c *daemon.Config) { c.AuditLog, c.TLSClientLogin = path, true })
	x.control(x.ca.client("acme", "")).ok("hello", obj{"protocol": 1})
	x.stop()
	lines, text := audited(t, path)
	if who, _ := lines[0]["who"].(string); !strings.HasPrefix(who, "certificate ") || !strings.HasSuffix(who, " acme") {
		t.Errorf("got %s", text)
	}
}

// TestAuditIsReopened: P13.10. Somebody moves the log away; SIGHUP makes a new
// one, and no line is lost.
func TestAuditIsReopened(t *testing.T) {
	p := newPlace(t)
	path := filepath.Join(p.dir, "audit")
	d := p.start(t, "--audit-log", path)
	sb := p.client(t, d)
	stat := func() {
		if _, err := sb.Stat(t.Context(), ".", sandbox.StatOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	stat()
	await(t, "both lines", func() bool { lines, _ := audited(t, path); return len(lines) == 2 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	d.kill(t, syscall.SIGHUP)
	await(t, "a new file", func() bool { _, err := os.Stat(path); return err == nil })
	stat()
	d.kill(t, syscall.SIGTERM)
	d.exitCode(t)
	old, _ := audited(t, path+".1")
	next, _ := audited(t, path)
	if len(old) != 2 || len(next) != 1 || next[0]["method"] != "stat" {
		t.Errorf("%v, then %v", old, next)
	}
}

// TestAuditHoldsUpNobody: P13.10. A log that takes nothing costs lines, which
// are counted and told once, and no call.
func TestAuditHoldsUpNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0) // who never reads
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	d := startWire(t, func(c *daemon.Config) { c.AuditLog = path })
	c := d.login()
	var batch strings.Builder
	for i := range 64 {
		fmt.Fprintf(&batch, `,{"jsonrpc":"2.0","id":%d,"method":"exists","params":{"path":"f"}}`, i)
	}
	const batches = 200 // more than the pipe and the queue hold
	for range batches {
		c.write("[" + batch.String()[1:] + "]\n")
		if line, err := c.in.ReadString('\n'); err != nil || strings.Count(line, `"exists":false`) != 64 {
			t.Fatalf("%v: %.300s", err, line)
		}
	}
	await(t, "lost lines", func() bool {
		return !strings.Contains(metricsText(t, d), "controld_audit_lost_lines_total 0\n")
	})
	d.stop()
	if n := strings.Count(d.log.String(), "the audit log is not whole"); n != 1 {
		t.Errorf("told %d times in\n%s", n, d.log)
	}
}
