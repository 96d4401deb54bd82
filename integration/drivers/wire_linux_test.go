package drivers

import (
	"bufio"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type object = map[string]any

// raw is a control connection on which a test writes what stands there.
type raw struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	id   int
}

func (p *place) raw(t *testing.T, d *daemon) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.ready.Control[0], "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(daemonTimeout))
	return &raw{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// call sends a request and returns its result, or the code and the data of its
// error.
func (r *raw) call(method string, params object) (result object, code float64, data object) {
	r.t.Helper()
	r.id++
	text, err := json.Marshal(object{"jsonrpc": "2.0", "id": r.id, "method": method, "params": params})
	if err == nil {
		_, err = r.conn.Write(append(text, '\n'))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	line, err := r.in.ReadBytes('\n')
	var answer struct {
		Result object
		Error  struct {
			Code float64
			Data object
		}
	}
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err != nil {
		r.t.Fatalf("%s: %q, %v", method, line, err)
	}
	return answer.Result, answer.Error.Code, answer.Error.Data
}

func (r *raw) ok(method string, params object) object {
	r.t.Helper()
	result, code, data := r.call(method, params)
	if code != 0 {
		r.t.Fatalf("%s: %v %v", method, code, data)
	}
	return result
}

// unavailable wants a call to be that, with nothing done.
func (r *raw) unavailable(method string, params object, reason string) object {
	r.t.Helper()
	result, code, data := r.call(method, params)
	if code != -32009 || data["kind"] != "unavailable" || data["reason"] != reason || data["outcome"] != "none" {
		r.t.Fatalf("%s: %v, %v %v, want %s", method, result, code, data, reason)
	}
	return data
}

// TestWire: P16.11, P17.16, P17.17 and P17.18, as they stand on the wire.
func TestWire(t *testing.T) {
	k := kinds["crun"]
	k.want(t)
	p := newPlace(t, append(k.flags(t), "--pool", "1", "--admin", "tcp://127.0.0.1:0"))
	d := p.serve(t)
	hello := object{"protocol": 1, "token": p.secret, "sandbox": "box"}

	ready := p.ready(t, d)
	r := p.raw(t, d)
	epoch := r.ok("hello", hello)["epoch"]
	info := r.ok("sandbox_info", object{})
	if info["instance"] != ready || info["epoch"] != epoch || info["state"] != "running" || info["tier"] != nil {
		t.Errorf("%s was ready, the sandbox is %v", ready, info)
	}

	if info := r.ok("sandbox_pause", object{}); info["state"] != "paused" || info["instance"] != ready {
		t.Errorf("paused: %v", info)
	}
	r.unavailable("exec", object{"command": "true"}, "sandbox_paused")
	if other := p.raw(t, d); other.ok("hello", hello)["epoch"] != epoch {
		t.Error("a hello to a paused sandbox has another epoch")
	}
	if info := r.ok("sandbox_resume", object{}); info["state"] != "running" || info["instance"] != ready {
		t.Errorf("resumed: %v", info)
	}
	if result := r.ok("exec", object{"command": "exit 3"}); result["exit_code"] != 3.0 {
		t.Errorf("behind the resume: %v", result)
	}

	for range 6 {
		r := p.raw(t, d)
		r.ok("hello", hello)
		p.endBox(t, r)
	}
	r = p.raw(t, d)
	data := r.unavailable("hello", hello, "sandbox_restarted")
	wait, ok := data["retry_after_s"].(float64)
	if !ok || wait <= 0 || wait > 1 {
		t.Fatalf("%v", data)
	}
	time.Sleep(time.Duration(wait * float64(time.Second))) // what it says
	if again := r.ok("hello", hello)["epoch"]; again == epoch {
		t.Error("the next life has the same epoch")
	}
}

// endBox ends the sandbox of a connection by a hand from outside, and waits
// until the connection is closed for it.
func (p *place) endBox(t *testing.T, r *raw) {
	t.Helper()
	id, _ := r.ok("sandbox_info", object{})["instance"].(string)
	p.signalInstance(t, id, unix.SIGKILL)
	if _, err := r.in.ReadByte(); err == nil {
		t.Fatal("something is said at the end")
	}
}
