package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// talk is a raw control connection of the cases.
type talk struct {
	*testing.T
	net.Conn
	lines *bufio.Reader
}

func dialControl(t *testing.T, d *process) *talk {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.ready.Control[0], "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &talk{t, conn, bufio.NewReader(conn)}
}

// reply is any answer.
type reply struct {
	ID     json.RawMessage `json:"id"`
	Result map[string]any  `json:"result"`
	Error  *struct {
		Code    int            `json:"code"`
		Message string         `json:"message"`
		Data    map[string]any `json:"data"`
	} `json:"error"`
}

func (c *talk) say(format string, args ...any) {
	c.Helper()
	if _, err := fmt.Fprintf(c.Conn, format+"\n", args...); err != nil {
		c.Fatal(err)
	}
}

func (c *talk) hear() reply {
	c.Helper()
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		c.Fatal(err)
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		c.Fatalf("%s: %v", line, err)
	}
	return r
}

func (c *talk) hello(p *place) {
	c.Helper()
	c.say(`{"jsonrpc":"2.0","id":0,"method":"hello","params":{"protocol":1,"token":%q}}`, p.secret)
	if r := c.hear(); r.Error != nil {
		c.Fatalf("hello: %+v", r.Error)
	}
}

// TestCase_C33: what a caller asks of privileges is refused by name.
func TestCase_C33(t *testing.T) {
	p := newPlace(t)
	c := dialControl(t, p.start(t))
	c.hello(p)
	for _, field := range []string{"user", "root", "privileged", "scope", "Command"} {
		c.say(`{"jsonrpc":"2.0","id":1,"method":"exec","params":{"command":"id",%q:"root"}}`, field)
		r := c.hear()
		if r.Error == nil || r.Error.Code != -32602 || !strings.Contains(r.Error.Message, field) {
			t.Errorf("%s: %+v", field, r)
		}
	}
}

// TestCase_C34: a scope is kept, and nothing tells what is beyond it.
func TestCase_C34(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	if err := sb.Mkdir(t.Context(), "s/a", sandbox.MkdirOptions{Recursive: true}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../../../../etc/passwd", "/etc/passwd", "/etc/no-such-file", strings.Repeat("a/../", 800) + "../../x", "../none"} {
		_, err := sb.ReadFile(t.Context(), path, sandbox.ReadOptions{Scope: "s"})
		if e := wantKind(t, err, sandbox.KindPermission); e.Errno == "ENOENT" {
			t.Errorf("%s: %+v", path, e)
		}
	}
	for path, want := range map[string]sandbox.Kind{"%2e%2e/": sandbox.KindNotFound, "..%00/": sandbox.KindNotFound, strings.Repeat("a/../", 1000) + "x": sandbox.KindNameTooLong} {
		_, err := sb.ReadFile(t.Context(), path, sandbox.ReadOptions{Scope: "s"})
		wantKind(t, err, want)
	}
}

// TestCase_C35: a hard link is split, as docs/protocol.md says.
func TestCase_C35(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	ran(t, sb, "echo old > a; ln a b; chmod 640 a", sandbox.ExecOptions{})
	if _, err := sb.WriteFile(t.Context(), "a", []byte("new"), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if res := ran(t, sb, "cat b; stat -c %a a", sandbox.ExecOptions{}); string(res.Stdout) != "old\n640\n" {
		t.Errorf("%q", res.Stdout)
	}
}

// TestCase_C37: files that lie about their size are read to their end.
func TestCase_C37(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	for path, want := range map[string]string{"/proc/self/status": "Pid:", "/proc/cpuinfo": "processor", "/proc/version": "Linux"} {
		c, err := sb.ReadFileBuffer(t.Context(), path, sandbox.ReadOptions{})
		if err != nil || !strings.Contains(string(c.Data), want) {
			t.Errorf("%s: %d bytes, %v", path, len(c.Data), err)
		}
		s, err := sb.ReadFileStream(t.Context(), path, sandbox.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(s)
		s.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("stream of %s: %d bytes, %v", path, len(text), err)
		}
	}
}

// TestCase_C41: a token is redeemed once: not after a success, a failure or a
// restart.
func TestCase_C41(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	c := dialControl(t, d)
	c.hello(p)
	mint := func() string {
		c.say(`{"jsonrpc":"2.0","id":1,"method":"write_file_stream","params":{"path":"f"}}`)
		r := c.hear()
		return r.Result["transfer"].(map[string]any)["token"].(string)
	}
	present := func(d *process, token string) string {
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.ready.Data[0], "tcp://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "CTRLD1 %s\n", token)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	used := mint()
	if got := present(d, used); got != "OK\n" {
		t.Fatalf("first: %q", got)
	}
	for range 2 {
		if got := present(d, used); got != "ERR token_invalid\n" {
			t.Fatalf("again: %q", got)
		}
	}
	fresh := mint()
	d.Process.Kill()
	<-d.exited
	if got := present(p.start(t), fresh); got != "ERR token_invalid\n" {
		t.Fatalf("after a restart: %q", got)
	}
}

// TestCase_C43: no token, content or environment value is in a log, a metric
// or an error, however verbose.
func TestCase_C43(t *testing.T) {
	p := newPlace(t)
	d := p.start(t, "--log-level", "trace")
	sb := p.client(t, d)
	const canary = "canary-43-content"
	if _, err := sb.WriteFile(t.Context(), "f", []byte(canary), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	ran(t, sb, "cat f", sandbox.ExecOptions{Env: map[string]string{"C": canary}, Stdin: []byte(canary)})
	_, err := sb.WriteFileStream(t.Context(), "no/such/dir", strings.NewReader(canary), sandbox.WriteOptions{})
	if err == nil || strings.Contains(err.Error(), canary) {
		t.Error(err)
	}
	c := dialControl(t, d)
	c.hello(p)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"read_file_stream","params":{"path":"f"}}`)
	token := c.hear().Result["transfer"].(map[string]any)["token"].(string)
	c.say(`{"jsonrpc":"2.0","id":2,"method":"write_file","params":{"path":"f","content":{"text":%q},"bad":1}}`, canary)
	if r := c.hear(); strings.Contains(r.Error.Message, canary) {
		t.Errorf("%+v", r.Error)
	}
	metric(t, d, "controld_transfers_inflight")
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.ready.PID))
	d.Process.Kill()
	<-d.exited
	for _, secret := range []string{canary, token, p.secret} {
		if strings.Contains(d.log.String(), secret) || strings.Contains(string(cmdline), secret) {
			t.Errorf("%.12s... is in the log or the command line", secret)
		}
	}
}

// TestCase_C44: garbage ends or goes on by the rules, and costs nothing that
// stays.
func TestCase_C44(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	before := metric(t, d, "go_goroutines")
	garbage := []string{"]\n", "{\n", "{\"jsonrpc\":\n", "\x00\x01", "GET / HTTP/1.1\r\n\r\n", "[[[[\n", "{}\n", strings.Repeat("[", 500) + "\n", "\xff\xfe\n", "\"\n"}
	var wg sync.WaitGroup
	for lane := range 10 {
		wg.Go(func() {
			for i := range 50 {
				conn, err := net.Dial("tcp", strings.TrimPrefix(d.ready.Control[0], "tcp://"))
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(conn, garbage[(lane+i)%len(garbage)])
				conn.Close()
			}
		})
	}
	wg.Wait()
	await(t, "the goroutines to end", func() bool { return metric(t, d, "go_goroutines") < before+10 })
}

// TestCase_C45: calls and cancels of them, pipelined: one answer each.
func TestCase_C45(t *testing.T) {
	p := newPlace(t)
	c := dialControl(t, p.start(t))
	c.hello(p)
	for round := range 20 {
		var all strings.Builder
		const calls = 100
		for i := range calls {
			id := round*calls + i + 1
			fmt.Fprintf(&all, `{"jsonrpc":"2.0","id":%d,"method":"exec","params":{"command":"true"}}`+"\n", id)
			if i%2 == 0 {
				fmt.Fprintf(&all, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%d}}`+"\n", id)
			} else {
				fmt.Fprintf(&all, `{"jsonrpc":"2.0","id":"c%d","method":"$/cancelRequest","params":{"id":%d}}`+"\n", id, id)
			}
		}
		go io.WriteString(c.Conn, all.String())
		seen := map[string]bool{}
		for range calls + calls/2 {
			r := c.hear()
			if seen[string(r.ID)] {
				t.Fatalf("%s was answered twice", r.ID)
			}
			seen[string(r.ID)] = true
			if r.Error != nil && r.Error.Code != -32800 {
				t.Fatalf("%s: %+v", r.ID, r.Error)
			}
		}
	}
}

// TestCase_C46: strangers cannot make the daemon hold what they send.
func TestCase_C46(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	before := metric(t, d, "process_resident_memory_bytes")
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(d.ready.Control[0], "tcp://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(patience))
			io.WriteString(conn, `{"jsonrpc":"`)
			block := []byte(strings.Repeat("a", 64<<10))
			for range 1600 { // 100 MiB, were they taken
				if _, err := conn.Write(block); err != nil {
					return
				}
			}
			t.Error("100 MiB were taken before a hello")
		})
	}
	wg.Wait()
	if grown := metric(t, d, "process_resident_memory_bytes") - before; grown > 32<<20 {
		t.Errorf("the daemon grew by %.0f bytes", grown)
	}
}

// TestCase_C57: versions meet with a clear answer, and a newer hello is no
// mistake.
func TestCase_C57(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	c := dialControl(t, d)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"token":%q,"future":{"x":1}}}`, p.secret)
	if r := c.hear(); r.Error != nil || r.Result["protocol"] != 1.0 {
		t.Errorf("%+v", r)
	}
	c.say(`{"jsonrpc":"2.0","id":2,"method":"rename","params":{"from":"a","to":"b"}}`)
	if r := c.hear(); r.Error == nil || r.Error.Code != -32601 {
		t.Errorf("%+v", r)
	}
	c = dialControl(t, d)
	c.say(`{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":2,"token":"x"}}`)
	r := c.hear()
	if r.Error == nil || r.Error.Data["kind"] != "unsupported" || fmt.Sprint(r.Error.Data["protocols"]) != "[1]" {
		t.Errorf("%+v", r.Error)
	}
	if _, err := c.lines.ReadByte(); err != io.EOF {
		t.Errorf("the connection goes on: %v", err)
	}
}

// TestCase_C30, C31, C32 and C36 are the suite's scope, rm and names checks and
// the races of sandbox/local/root; here they are tried once more from outside.
func TestCase_C30(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	ran(t, sb, "mkdir -p s/a; ln -s /etc s/link", sandbox.ExecOptions{})
	for _, path := range []string{"link", "link/", "link/.", "link//", "./link/", "a/../link/", "link/passwd"} {
		opts := sandbox.ReadDirOptions{Scope: "s"}
		if _, err := sb.ReadDir(t.Context(), path, opts); sandbox.KindOf(err) != sandbox.KindPermission {
			t.Errorf("readdir %s: %v", path, err)
		}
		if _, err := sb.ReadFile(t.Context(), path, sandbox.ReadOptions{Scope: "s"}); sandbox.KindOf(err) != sandbox.KindPermission {
			t.Errorf("read %s: %v", path, err)
		}
		if _, err := sb.Stat(t.Context(), path, sandbox.StatOptions{Scope: "s"}); sandbox.KindOf(err) != sandbox.KindPermission {
			t.Errorf("stat %s: %v", path, err)
		}
		if err := sb.Mkdir(t.Context(), path+"/x", sandbox.MkdirOptions{Scope: "s"}); sandbox.KindOf(err) != sandbox.KindPermission {
			t.Errorf("mkdir %s: %v", path, err)
		}
	}
}

// swapping exchanges two names as fast as it can until stop is called.
func swapping(t *testing.T, a, b string) (stop func()) {
	t.Helper()
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
				exchange(a, b)
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

// TestCase_C31: a recursive rm is not led away by a directory that becomes a
// link under it.
func TestCase_C31(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	ran(t, sb, "mkdir victim; : > victim/keep; ln -s ../victim link", sandbox.ExecOptions{})
	for range 30 {
		ran(t, sb, "mkdir -p tree/d && cd tree/d && for i in 0 1 2 3 4 5 6 7 8 9; do mkdir e$i; : > e$i/f; : > f$i; done; [ -L ../../other ] || ln -s ../../victim ../../other", sandbox.ExecOptions{})
		stop := swapping(t, filepath.Join(p.cwd(), "tree", "d"), filepath.Join(p.cwd(), "other"))
		_, _ = sb.Exists(t.Context(), "tree", sandbox.ExistsOptions{})
		err := sb.Rm(t.Context(), "tree", sandbox.RmOptions{Recursive: true, Force: true})
		stop()
		if _, serr := os.Stat(filepath.Join(p.cwd(), "victim", "keep")); serr != nil {
			t.Fatalf("the victim was touched (rm: %v)", err)
		}
		ran(t, sb, "rm -rf tree other", sandbox.ExecOptions{})
	}
}

// TestCase_C32: a component that is swapped under a scoped call leads nowhere
// outside.
func TestCase_C32(t *testing.T) {
	p := newPlace(t)
	sb := p.client(t, p.start(t))
	ran(t, sb, "mkdir -p s/dir out; echo inside > s/dir/f; echo secret > out/f; ln -s ../out s/link", sandbox.ExecOptions{})
	stop := swapping(t, filepath.Join(p.cwd(), "s", "dir"), filepath.Join(p.cwd(), "s", "link"))
	defer stop()
	refused := 0
	for range 2000 {
		c, err := sb.ReadFileBuffer(t.Context(), "dir/f", sandbox.ReadOptions{Scope: "s"})
		if err != nil {
			refused++
			continue
		}
		if string(c.Data) != "inside\n" {
			t.Fatalf("read %q", c.Data)
		}
	}
	for range 200 {
		sb.WriteFile(t.Context(), "dir/new", []byte("x"), sandbox.WriteOptions{Scope: "s"})
		sb.Mkdir(t.Context(), "dir/d", sandbox.MkdirOptions{Scope: "s"})
	}
	names, err := os.ReadDir(filepath.Join(p.cwd(), "out"))
	if err != nil || len(names) != 1 {
		t.Fatalf("outside stands %v, %v", names, err)
	}
	if refused == 0 {
		t.Log("no call met the link")
	}
}
