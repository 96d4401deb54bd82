package rpc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/controld/controld/sandbox"
)

const aKey = "0190f3c1-7b1e-7d5a-9c3e-0123456789ab"

// everyParams has each params with every field set.
func everyParams() map[string]Params {
	content := []byte(strings.Repeat("line \"one\"\n", 2000))
	return map[string]Params{
		MethodHello:  &HelloParams{Protocol: 1, Token: "t", Client: "c/1", Sandbox: "box", Tenant: "acme", Mux: "yamux"},
		MethodPing:   &Empty{},
		MethodCancel: &CancelParams{ID: []byte(`"a\u0041"`)},
		MethodReadFile: &ReadParams{Path: "p\xff", Options: sandbox.ReadOptions{
			Scope: "s", Offset: 5, Length: sandbox.Some[int64](0), InlineMax: sandbox.Some[int64](9)}},
		MethodReadFileStream: NewReadStreamParams("p", sandbox.ReadOptions{
			Scope: "s\xff", Offset: maxInt - 1, Length: sandbox.Some[int64](7), IfMatch: "e", Digest: true, RequestKey: aKey}),
		MethodWriteFile: &WriteParams{Path: "p", Content: content, Options: sandbox.WriteOptions{
			Scope: "s", Mode: sandbox.Some[uint32](0), IfMatch: "e", Sync: true, RequestKey: aKey}},
		MethodWriteFileStream: NewWriteStreamParams("p", sandbox.WriteOptions{
			Scope: "s", Mode: sandbox.Some[uint32](0o755), IfMatch: "e", Sync: true, Size: sandbox.Some[int64](0), Parents: true, Digest: true, RequestKey: aKey}),
		MethodStat:    &StatParams{Path: "p", Options: sandbox.StatOptions{Scope: "s", NoFollow: true}},
		MethodReadDir: &ReadDirParams{Path: "p", Options: sandbox.ReadDirOptions{Scope: "s", After: "\xfe", Limit: 3}},
		MethodExists:  &ExistsParams{Path: "p", Options: sandbox.ExistsOptions{Scope: "s"}},
		MethodMkdir:   &MkdirParams{Path: "p", Options: sandbox.MkdirOptions{Scope: "s", Recursive: true, RequestKey: aKey}},
		MethodRm:      &RmParams{Path: "p", Options: sandbox.RmOptions{Scope: "s", Recursive: true, Force: true, RequestKey: aKey}},
		MethodExec: &ExecParams{Command: "echo \"hi\"\n", Options: sandbox.ExecOptions{
			Cwd: "d\xff", Env: map[string]string{"A": "1", "_b": "\""}, Timeout: 1500 * time.Microsecond, Stdin: []byte{0, 255},
			MaxOutputBytes: sandbox.Some[int64](0), KillGrace: sandbox.Some(time.Duration(0)),
			RequestKey: aKey, Detach: true}},
		MethodTransferResult: &TransferParams{ID: "x"},
		MethodTransferAbort:  &TransferParams{ID: "y"},
		MethodTransferCommit: &CommitParams{ID: "x", Commit: sandbox.Commit{Bytes: 0, SHA256: strings.Repeat("0a", 32)}},
		MethodSandboxList:    &Empty{},
		MethodSandboxInfo:    &SandboxParams{},
		MethodSandboxCreate:  &SandboxParams{Sandbox: "box"},
		MethodSandboxRemove:  &SandboxRemoveParams{Sandbox: "box", Files: true},
		MethodSandboxPause:   &SandboxParams{Sandbox: "box"},
		MethodSandboxResume:  &SandboxParams{},
		MethodSandboxExtend:  &SandboxExtendParams{Sandbox: "box", For: MaxSandboxExtend},
	}
}

func TestParamsRoundTrip(t *testing.T) {
	for method, p := range everyParams() {
		text := EncodeParams(nil, p)
		if !json.Valid(text) {
			t.Fatalf("%s: no JSON: %s", method, text)
		}
		got, err := DecodeParams(method, text)
		if err != nil {
			t.Fatalf("%s: %v: %s", method, err, text)
		}
		if !reflect.DeepEqual(got, p) {
			t.Errorf("%s: got %+v, want %+v", method, got, p)
		}
	}
}

func everyResult() []Result {
	mtime := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	transfer := Transfer{ID: "i", Token: "t", Endpoints: []string{"tcp://:1"}, ExpiresIn: 30 * time.Second}
	return []Result{
		&Empty{},
		&HelloResult{Protocol: 1, Server: "s/1", Data: []string{"tcp://:7072"}, Info: sandbox.Info{
			Tenant: "a", Sandbox: "b", Cwd: "/w\xff", Epoch: "e", Capabilities: []string{"exec"}, Limits: sandbox.DefaultLimits(), Tree: "cgroup"}},
		&ReadResult{File: sandbox.FileContent{Data: []byte("x"), Size: 9, ETag: "e"}},
		&ReadResult{File: sandbox.FileContent{Size: 9, ETag: "e"}, Transfer: &transfer, Length: 4},
		&WriteResult{sandbox.WriteInfo{Bytes: 5, ETag: "e", Atomic: true}},
		&WriteResult{sandbox.WriteInfo{Bytes: 5}},
		&StatResult{sandbox.FileStat{Type: sandbox.TypeFile, IsSymlink: sandbox.Some(false), Size: sandbox.Some[int64](0),
			ModTime: sandbox.Some(mtime), Mode: sandbox.Some[uint32](0), ETag: "e"}},
		&StatResult{sandbox.FileStat{Type: sandbox.TypeOther}},
		&ReadDirResult{sandbox.Listing{Names: []string{}}},
		&ReadDirResult{sandbox.Listing{Names: []string{"a", "\xff"}, More: true}},
		&ExistsResult{true},
		&ExistsResult{},
		&ExecResult{sandbox.ShellResult{Stdout: []byte("o"), Stderr: []byte{255}, ExitCode: 137, Signal: "KILL", Reason: sandbox.ReasonSignaled,
			StdoutOmitted: 1, StderrOmitted: 2, Background: true, KillPending: true, Duration: 1234567 * time.Nanosecond}},
		&StreamResult{Transfer: transfer, Size: sandbox.Some[int64](0), Length: sandbox.Some[int64](0), ETag: "e"},
		&StreamResult{Transfer: transfer},
		&VerdictResult{Bytes: 0, ETag: "e", Verdict: sandbox.ReadVerdict{Changed: true, SHA256: "x"}},
		&SandboxResult{sandbox.Status{Sandbox: "b", State: sandbox.StateStopped, Tier: "small"}},
		&SandboxListResult{[]sandbox.Status{}},
		&SandboxListResult{[]sandbox.Status{
			{Sandbox: "b", State: sandbox.StateRunning, Driver: "oci", Instance: aKey, Epoch: aKey, Started: sandbox.Some(mtime), Ends: sandbox.Some(mtime),
				IdleStop: 1500 * time.Millisecond, CPU: sandbox.Some(time.Duration(0)), Memory: sandbox.Some[int64](0), Processes: sandbox.Some[int64](1)},
			{Sandbox: "c", State: sandbox.StateStarting}}},
	}
}

func TestResultsRoundTrip(t *testing.T) {
	for _, r := range everyResult() {
		text := EncodeResult(nil, r)
		got := reflect.New(reflect.TypeOf(r).Elem()).Interface().(Result)
		if err := DecodeResult(text, got); err != nil || !json.Valid(text) {
			t.Fatalf("%T: %v: %s", r, err, text)
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%T: got %+v, want %+v", r, got, r)
		}
		// A newer server may say more, anywhere in the object.
		if !bytes.HasPrefix(text, []byte("{}")) {
			more := append([]byte(`{"future":{"a":[1,"x"]},"future":1,`), text[1:]...)
			again := reflect.New(reflect.TypeOf(r).Elem()).Interface().(Result)
			if err := DecodeResult(more, again); err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%T with unknown fields: %v", r, err)
			}
		}
	}
}

func TestStatTimesOutsideYears(t *testing.T) {
	for _, year := range []int{0, -5, 10000} {
		r := &StatResult{sandbox.FileStat{Type: sandbox.TypeFile, ModTime: sandbox.Some(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC))}}
		if text := EncodeResult(nil, r); bytes.Contains(text, []byte("mtime")) {
			t.Errorf("year %d: %s", year, text)
		}
	}
}

// TestContentMatchesRule compares the encoder with the rule, written down
// naively, on contents of every mixture.
func TestContentMatchesRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"plain text ", "\"", "\\", "\n", "\x00", "世", "é", "\xff", "<", "\u2028", "\x7f", "\x1f"}
	for range 3000 {
		var b []byte
		kinds := pieces[:1+rng.IntN(len(pieces))]
		for size := rng.IntN(1 << (4 + rng.IntN(12))); len(b) < size; {
			b = append(b, kinds[rng.IntN(len(kinds))]...)
		}
		checkRule(t, b)
	}
}

func checkRule(t *testing.T, b []byte) {
	t.Helper()
	m := newMessage()
	encoder{m}.content(b)
	size := m.Size()
	var got []byte
	for last := false; !last; {
		var piece []byte
		piece, last = m.fill(make([]byte, 0, 64+len(b)%5000))
		got = append(got, piece...)
	}
	m.release()
	if int64(len(got)) != size {
		t.Fatalf("said %d bytes, made %d", size, len(got))
	}
	plain := naive(b)
	coded := `"` + base64.StdEncoding.EncodeToString(b) + `"`
	want := `{"base64":` + coded + `}`
	if utf8.Valid(b) && len(plain) <= len(coded) {
		want = `{"text":` + plain + `}`
	}
	if string(got) != want {
		t.Fatalf("%q: got %.200s, want %.200s", b[:min(len(b), 100)], got, want)
	}
	d := decoder{data: got}
	if back := d.content(); d.broken != "" || d.bad != "" || !bytes.Equal(back, b) {
		t.Fatalf("does not come back: %s %s", d.broken, d.bad)
	}
}

func naive(b []byte) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.Encode(string(b))
	s := strings.TrimSuffix(out.String(), "\n")
	return strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(s)
}

// TestSkipAgreesWithStandard: the scanner takes what encoding/json takes, but
// for what the protocol forbids.
func TestSkipAgreesWithStandard(t *testing.T) {
	for _, text := range []string{
		`0`, `-0`, `-`, `1.`, `.5`, `1e`, `1e+`, `1E-5`, `00`, `0x1`, `+1`, `1 2`, `"a`, `"\x"`, `"\u12"`, `"\u123g"`, `"\uD83D\uDE00"`,
		`true`, `tru`, `nul`, `null `, `[1,]`, `[,]`, `[1 2]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":1 "b":2}`, `{1:2}`, `[]]`, ``, ` `,
		`{"a":[{},[],"",{"b":null}]}`, "\"\x7f\"", "[1]\x00", "\"\x1f\"", "\ufeff1",
	} {
		d := decoder{data: []byte(text)}
		d.skip()
		d.finish()
		if got, want := d.broken == "", json.Valid([]byte(text)); got != want {
			t.Errorf("%q: valid %v, want %v", text, got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0.1": 100 * time.Millisecond, "1e-9": 1, "0.000000001": 1, "604800": MaxExecTimeout, "1.5e1": 15 * time.Second, "-0": 0,
	} {
		d := decoder{data: []byte(text)}
		if got := d.seconds(MaxExecTimeout); got != want || d.bad != "" {
			t.Errorf("%s: got %v (%s)", text, got, d.bad)
		}
	}
	for _, want := range []time.Duration{0, 1, 999999999, time.Second, 86400*time.Second + 1, 1234567 * time.Nanosecond} {
		m := newMessage()
		encoder{m}.seconds(want)
		d := decoder{data: m.buf}
		if got := d.seconds(maxDuration); got != want {
			t.Errorf("%v became %s and %v", want, m.buf, got)
		}
	}
}
