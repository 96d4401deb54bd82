package integration

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// sh runs a command that must give a result.
func (c *wireClient) sh(command string, more ...obj) wireReply {
	c.t.Helper()
	return c.ok("exec", execParams(command, more...))
}

func execParams(command string, more ...obj) obj {
	params := obj{"command": command}
	for _, m := range more {
		for k, v := range m {
			params[k] = v
		}
	}
	return params
}

// out is what a command wrote, "stdout|stderr".
func (r wireReply) out(t *testing.T) string {
	t.Helper()
	return r.content(t, "stdout") + "|" + r.content(t, "stderr")
}

// TestWireExec: P9.1, P9.2, P9.3, P9.4 and P9.7.
func TestWireExec(t *testing.T) {
	d := startWire(t, nil)
	c := d.login()
	c.writeFile("dir/f", "x")
	tests := []struct {
		command string
		more    obj
		out     string
		code    int
		reason  string
		signal  any
	}{
		{"printf hi; printf oh >&2; exit 3", nil, "hi|oh", 3, "exited", nil},
		{"", nil, "|", 0, "exited", nil},
		{"no-such-command 2>/dev/null", nil, "|", 127, "exited", nil},
		{"exit 255", nil, "|", 255, "exited", nil},
		{"[ -n \"$0\" ] && printf %s \"$0\"", nil, "/bin/sh|", 0, "exited", nil},
		{"printf a; kill -9 $$", nil, "a|", 137, "signaled", "KILL"},
		{"kill -TERM $$", nil, "|", 143, "signaled", "TERM"},
		{"cat", nil, "|", 0, "exited", nil},
		{"cat; cat >&2", obj{"stdin": obj{"base64": "AP8K"}}, "\x00\xff\n|", 0, "exited", nil},
		{"true", obj{"stdin": text(strings.Repeat("unread", 100000))}, "|", 0, "exited", nil},
		{"pwd", nil, d.path() + "\n|", 0, "exited", nil},
		{"pwd", obj{"cwd": "dir"}, d.path("dir") + "\n|", 0, "exited", nil},
		{"pwd", obj{"cwd": "/"}, "/\n|", 0, "exited", nil},
		{"printf 'so far'; sleep 300", obj{"timeout_s": 3}, "so far|", 124, "timed_out", nil},
		{"printf ended", obj{"timeout_s": 604800}, "ended|", 0, "exited", nil},
	}
	for _, tt := range tests {
		t.Run(tt.command, func(t *testing.T) {
			r := c.sh(tt.command, tt.more)
			if r.out(t) != tt.out || r.num("exit_code") != tt.code || r.str("reason") != tt.reason || r.Result["signal"] != tt.signal {
				t.Fatalf("got %.300s", r.line)
			}
			if s, ok := r.Result["duration_s"].(float64); !ok || s <= 0 || s > patience.Seconds() || r.str("reason") == "exited" && r.Result["background"] != nil {
				t.Fatalf("got %.300s", r.line)
			}
		})
	}
	if err := os.Symlink("/proc/self/fd/0", d.path("magic")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cwd  string
		code int
		kind string
	}{
		{"missing", -32003, "not_found"},
		{"dir/f", -32004, "not_directory"},
		{"/proc/self/cwd", -32002, "permission"},
		{"/proc/self/fd/0", -32002, "permission"},
		{"magic", -32002, "permission"},
	} {
		c.fails("exec", execParams("true", obj{"cwd": tt.cwd}), tt.code, tt.kind)
	}
}

// TestWireExecEnvironment: P9.5 and P9.6.
func TestWireExecEnvironment(t *testing.T) {
	t.Setenv("CONTROLD_SECRET_OF_THE_DAEMON", "x")
	d := startWire(t, nil)
	c := d.login()
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	base := []string{"HOME=" + d.path(), "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"SHELL=/bin/sh", "TERM=dumb", "USER=" + u.Username}
	env := func(more obj) []string {
		lines := strings.Fields(c.sh("env", obj{"env": more}).content(t, "stdout"))
		lines = slices.DeleteFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "PWD=") || strings.HasPrefix(l, "OLDPWD=") || strings.HasPrefix(l, "SHLVL=") || strings.HasPrefix(l, "_=")
		}) // the shell's own
		slices.Sort(lines)
		return lines
	}
	if got := env(obj{}); !slices.Equal(got, base) {
		t.Fatalf("got %q, want %q", got, base)
	}
	want := append(slices.DeleteFunc(base, func(l string) bool { return strings.HasPrefix(l, "LANG=") }), "LANG=C", "_x9=y=z")
	slices.Sort(want)
	if got := env(obj{"LANG": "C", "_x9": "y=z"}); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for _, name := range []string{"", "1A", "A-B", "A=B", "\u00e9", "A\x00"} {
		c.fails("exec", execParams("true", obj{"env": obj{name: "x"}}), -32602, "invalid_params")
	}
	c.fails("exec", execParams("true", obj{"env": obj{"A": "x\x00"}}), -32602, "invalid_params")
	c.fails("exec", execParams("true", obj{"env": obj{"A": 1}}), -32602, "invalid_params")
}

// TestWireExecLimits: P9.8, P9.12, P9.13 and P9.14.
func TestWireExecLimits(t *testing.T) {
	c := startWire(t, nil).login()
	for _, bad := range []obj{
		{"timeout_s": 0}, {"timeout_s": -1}, {"timeout_s": 604801}, {"timeout_s": "1"}, {"kill_grace_s": -1}, {"kill_grace_s": 604801},
		{"max_output_bytes": 8388609}, {"max_output_bytes": -1}, {"cwd": ""}, {"scope": "/"}, {"command": "a\x00b"},
	} {
		c.fails("exec", execParams("true", bad), -32602, "invalid_params")
	}
	const some = "i=0; while [ $i -lt 10 ]; do printf 012345678%s $i; i=$((i+1)); done; printf xyz >&2"
	all := ""
	for i := range 10 {
		all += "012345678" + fmt.Sprint(i)
	}
	for limit, want := range map[int]string{100: all, 101: all, 99: all[:50] + all[51:], 7: all[:4] + all[97:], 1: all[:1], 0: ""} {
		r := c.sh(some, obj{"max_output_bytes": limit})
		if got := r.content(t, "stdout"); got != want || r.num("stdout_omitted") != 100-len(want) {
			t.Fatalf("limit %d: %q, %d omitted", limit, got, r.num("stdout_omitted"))
		}
		if omitted := max(3-limit, 0); r.num("stderr_omitted") != omitted || (omitted == 0) != (r.Result["stderr_omitted"] == nil) {
			t.Fatalf("limit %d: %s", limit, r.line)
		}
	}
	r := c.sh("head -c 9000000 /dev/zero")
	if n := len(r.content(t, "stdout")); n != 8<<20 || r.num("stdout_omitted") != 9000000-8<<20 {
		t.Fatalf("%d bytes, %d omitted", n, r.num("stdout_omitted"))
	}
	c.fails("exec", execParams("true "+strings.Repeat("x", 200<<10)), -32010, "argument_too_long")
	c.fails("exec", execParams("true", obj{"env": obj{"A": strings.Repeat("x", 200<<10)}}), -32010, "argument_too_long")
}

// TestWireCallsCancelled: P4.8, P4.9, P4.14 and P3.24.
func TestWireCallsCancelled(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.MaxInflight = 1 })
	c := d.login()
	running := c.send("exec", execParams("echo $$ > pids; sleep 300"))
	d.pids(1)
	write := c.send("write_file", obj{"path": "f", "content": text("x")})
	c.cancel(write)
	c.wait(write).want(t, -32800, "cancelled")
	c.ok("$/cancelRequest", obj{"id": 12345})
	if r := c.ok("$/cancelRequest", obj{"id": c.last - 2}); len(r.Result) != 0 {
		t.Fatalf("got %s", r.line)
	}
	c.wait(running).want(t, -32800, "cancelled")
	if r := c.ok("exists", obj{"path": "f"}); r.Result["exists"] != false {
		t.Fatal("a cancelled write happened")
	}
	slow := c.send("exec", execParams("echo $$ > pids; sleep 300"))
	d.pids(1)
	queued := c.send("write_file", obj{"path": "f", "content": text("x")})
	c.conn.(interface{ CloseWrite() error }).CloseWrite()
	c.wait(slow).want(t, -32800, "cancelled")
	c.wait(queued).want(t, -32800, "cancelled")
	c.closed()
	if _, err := os.Stat(d.path("f")); err == nil {
		t.Fatal("a cancelled write happened")
	}
}

// TestWireWriteTimeout: P4.7. A peer that reads nothing is cut off and its
// command with it.
func TestWireWriteTimeout(t *testing.T) {
	d := startWire(t, func(c *daemon.Config) { c.WriteTimeout = 500 * time.Millisecond })
	c := d.login()
	c.conn.(interface{ SetReadBuffer(int) error }).SetReadBuffer(4 << 10)
	c.send("exec", execParams("echo $$ > pids; sleep 300"))
	pids := d.pids(1)
	for range 3 {
		c.send("exec", execParams("head -c 8000000 /dev/zero"))
	}
	awaitEnd(t, pids)
}
