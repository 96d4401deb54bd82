package hostileagent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/controld/controld/integration/hostileagent"
	"github.com/controld/controld/sandbox"
)

// The calls that are lied to.

func stat(ctx context.Context, b sandbox.Backend) error {
	_, err := b.Stat(ctx, "f", sandbox.StatOptions{})
	return err
}

func exists(ctx context.Context, b sandbox.Backend) error {
	_, err := b.Exists(ctx, "f", sandbox.ExistsOptions{})
	return err
}

func readDir(ctx context.Context, b sandbox.Backend) error {
	_, err := b.ReadDir(ctx, "d", sandbox.ReadDirOptions{Limit: 2, After: "A"})
	return err
}

func mkdir(ctx context.Context, b sandbox.Backend) error {
	return b.Mkdir(ctx, "d", sandbox.MkdirOptions{})
}

func rm(ctx context.Context, b sandbox.Backend) error { return b.Rm(ctx, "f", sandbox.RmOptions{}) }

func readFile(ctx context.Context, b sandbox.Backend) error {
	_, err := b.ReadFile(ctx, "f", sandbox.ReadOptions{Length: sandbox.Some[int64](5)})
	return err
}

func readAll(ctx context.Context, b sandbox.Backend) error {
	_, err := b.ReadFileBuffer(ctx, "f", sandbox.ReadOptions{})
	return err
}

func writeFile(ctx context.Context, b sandbox.Backend) error {
	_, err := b.WriteFile(ctx, "f", []byte(hostileagent.Content), sandbox.WriteOptions{})
	return err
}

func execute(ctx context.Context, b sandbox.Backend) error {
	_, err := b.Exec(ctx, "true", sandbox.ExecOptions{MaxOutputBytes: sandbox.Some[int64](10)})
	return err
}

func readStream(ctx context.Context, b sandbox.Backend) error {
	r, err := b.ReadFileStream(ctx, "f", sandbox.ReadOptions{Length: sandbox.Some[int64](5)})
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

func writeStream(ctx context.Context, b sandbox.Backend) error {
	_, err := b.WriteFileStream(ctx, "f", strings.NewReader(hostileagent.Content), sandbox.WriteOptions{})
	return err
}

// bad are results that are none, by method.
var bad = map[string]struct {
	call    func(context.Context, sandbox.Backend) error
	results []string
}{
	"stat": {stat, []string{"7", "{}", "null", "[]", `{"type":7}`, `{"type":"file","size":-1}`, `{"type":"file","size":9007199254740992}`,
		`{"type":"file","size":1e300}`, `{"type":"file","mtime":"x"}`, `{"type":"file","mode":4096}`, `{"type":"file","type":"file"}`}},
	"exists": {exists, []string{"7", "{}", `{"exists":1}`, `{"exists":null}`, `{"exists":"true"}`}},
	"readdir": {readDir, []string{"7", "{}", `{"entries":7}`, `{"entries":[7]}`, `{"entries":{}}`, `{"entries":["a","b","c"]}`,
		`{"entries":["b","a"]}`, `{"entries":["a","a"]}`, `{"entries":["A"]}`, `{"entries":["a"],"entries":["b"]}`,
		`{"entries":[],"more":true}`, `{"entries":[".."]}`, `{"entries":["."]}`, `{"entries":["a/b"]}`, `{"entries":[""]}`,
		`{"entries":["a\u0000"]}`, `{"entries":[{"base64":"YS9i"}]}`, `{"entries":[{"base64":"!"}]}`}},
	"mkdir": {mkdir, []string{"7", "null", "[]", `"ok"`}},
	"rm":    {rm, []string{"7", "null", "[]", `"ok"`}},
	"read_file": {readFile, []string{"7", "{}", `{"content":7,"size":5}`, `{"content":{"text":7},"size":5}`, `{"content":{"base64":"!"},"size":5}`,
		`{"content":{},"size":5}`, `{"content":{"text":"hello"},"size":-5}`, `{"content":{"text":"hello, and more"},"size":5}`,
		`{"transfer":7,"size":5}`, `{"transfer":{},"size":5}`, `{"transfer":` + hostileagent.Transfer("read", hostileagent.Token, "unix:///d") + `,"length":6,"size":6}`,
		`{"transfer":` + hostileagent.Transfer("read", "short", "unix:///d") + `,"length":5,"size":5}`}},
	"write_file": {writeFile, []string{"7", "{}", `{"bytes":-1}`, `{"bytes":9007199254740992}`, `{"bytes":4}`, `{"bytes":"5"}`, `{"bytes":5,"atomic":7}`}},
	"exec": {execute, []string{"7", "{}", `{"exit_code":0}`, `{"reason":"exited"}`, `{"exit_code":1e10,"reason":"exited"}`,
		`{"exit_code":0,"reason":7}`, `{"exit_code":0,"reason":"exited","duration_s":-1}`, `{"exit_code":0,"reason":"exited","stdout_omitted":-1}`,
		`{"exit_code":0,"reason":"exited","stdout":{"text":"hello, world"}}`, `{"exit_code":0,"reason":"exited","stderr":{"text":"hello, world"}}`}},
	"read_file_stream": {readStream, []string{"7", "{}", `{"transfer":{}}`, `{"transfer":` + hostileagent.Transfer("read", "short", "unix:///d") + `}`,
		`{"transfer":` + hostileagent.Transfer("read", hostileagent.Token+"A", "unix:///d") + `,"length":5}`,
		`{"transfer":` + hostileagent.Transfer(strings.Repeat("x", 1000), hostileagent.Token, "unix:///d") + `,"length":5}`,
		`{"transfer":` + hostileagent.Transfer("read", hostileagent.Token, "unix:///d") + `,"length":6}`,
		`{"transfer":` + hostileagent.Transfer("read", hostileagent.Token, "unix:///d") + `,"length":-6}`}},
	"write_file_stream": {writeStream, []string{"7", "{}", `{"transfer":{}}`, `{"transfer":` + hostileagent.Transfer("write", "CTRLD1 \n", "unix:///d") + `}`}},
	"transfer_commit":   {writeStream, []string{"7", "{}", `{"bytes":4}`, `{"bytes":6}`, `{"bytes":-5}`}},
}

// lies are all of them, by name.
func lies() map[string]lie {
	all := map[string]lie{}
	for method, b := range bad {
		for i, result := range b.results {
			all[fmt.Sprintf("%s/%d", method, i)] = lie{call: b.call, kinds: internal, script: answering(method, result)}
		}
	}
	for name, l := range helloLies() {
		all["hello/"+name] = l
	}
	for name, l := range lineLies() {
		all["line/"+name] = l
	}
	for name, l := range errorLies() {
		all["error/"+name] = l
	}
	for name, l := range dataLies() {
		all["data/"+name] = l
	}
	for method, b := range bad {
		if method == "transfer_commit" {
			continue // it is asked for anew
		}
		all["hangs up/"+method] = lie{call: b.call, kinds: lost, script: saying(method, func(io.Writer, string) bool { return false })}
		all["half a line/"+method] = lie{call: b.call, kinds: lost, script: saying(method, func(w io.Writer, id string) bool {
			io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"resu`)
			return false
		})}
	}
	for bytes, kinds := range map[string][]sandbox.Kind{"5": well, "4": internal} {
		s := saying("transfer_commit", func(io.Writer, string) bool { return false })
		s.Results = map[string]string{"transfer_result": `{"bytes":` + bytes + `}`}
		all["asked anew/"+bytes] = lie{call: writeStream, kinds: kinds, script: s}
	}
	return all
}

var (
	well     = []sandbox.Kind{""}
	internal = []sandbox.Kind{sandbox.KindInternal}
	lost     = []sandbox.Kind{sandbox.KindConnectionLost, sandbox.KindUnavailable}
	gaveUp   = []sandbox.Kind{sandbox.KindCancelled, sandbox.KindOutcomeUnknown}
)

func answering(method, result string) hostileagent.Script {
	return hostileagent.Script{Results: map[string]string{method: result}}
}

func saying(method string, say func(io.Writer, string) bool) hostileagent.Script {
	return hostileagent.Script{Says: map[string]func(io.Writer, string) bool{method: say}}
}

func failing(kind, message string, code int) hostileagent.Script {
	return saying("stat", func(w io.Writer, id string) bool {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s,"data":{"kind":%q}}}`+"\n", id, code, message, kind)
		return true
	})
}

// helloLies: whose hello is none has no sandbox; that is no word on whoever
// asked for it.
func helloLies() map[string]lie {
	failed := []sandbox.Kind{sandbox.KindStartFailed}
	refuses := func(kind string, code int) hostileagent.Script {
		s := failing(kind, `"no"`, code)
		s.Says["hello"] = s.Says["stat"]
		return s
	}
	return map[string]lie{
		"a number":        {call: stat, kinds: failed, script: answering("hello", "7")},
		"empty":           {call: stat, kinds: failed, script: answering("hello", "{}")},
		"protocol 2":      {call: stat, kinds: failed, script: answering("hello", strings.Replace(hostileagent.Hello("exec"), `"protocol":1`, `"protocol":2`, 1))},
		"long":            {call: stat, kinds: failed, script: answering("hello", hostileagent.Hello(strings.Repeat("x", 100_000)))},
		"limits":          {call: stat, kinds: failed, script: answering("hello", strings.Replace(hostileagent.Hello("exec"), `"limits":{`, `"limits":{"max_inflight":-1,`, 1))},
		"unauthenticated": {call: stat, kinds: failed, script: refuses("unauthenticated", -32001)},
		"exhausted":       {call: stat, kinds: failed, script: refuses("resource_exhausted", -32009)},
		"never":           {call: stat, kinds: gaveUp, within: briefly, script: saying("hello", func(io.Writer, string) bool { return true })},
		"hangs up":        {call: stat, kinds: gaveUp, within: briefly, script: saying("hello", func(io.Writer, string) bool { return false })},
		"accept":          {call: stat, kinds: gaveUp, within: briefly, script: hostileagent.Script{Accept: func(net.Conn) {}}},
		"garbage":         {call: stat, kinds: gaveUp, within: briefly, script: hostileagent.Script{Accept: func(c net.Conn) { io.WriteString(c, "\x00\x01garbage\n") }}},
	}
}

// lineLies: lines that are none, or of no use.
func lineLies() map[string]lie {
	before := func(text string) hostileagent.Script {
		return saying("stat", func(w io.Writer, id string) bool {
			io.WriteString(w, text)
			return hostileagent.Result(w, id, `{"type":"file"}`) == nil
		})
	}
	twice := func(w io.Writer, id string) bool {
		hostileagent.Result(w, id, `{"type":"file"}`)
		return hostileagent.Result(w, id, `{"type":7}`) == nil
	}
	return map[string]lie{
		"garbage":       {call: stat, kinds: lost, script: before("\x00\x01\n")},
		"too deep":      {call: stat, kinds: lost, script: before(strings.Repeat("[", 100_000) + "\n")},
		"an array":      {call: stat, kinds: lost, script: before("[]\n")},
		"never asked":   {call: stat, kinds: well, script: before(`{"id":77,"result":{}}` + "\n" + `{"id":"x","result":7}` + "\n" + `{"id":18446744073709551616,"result":7}` + "\n")},
		"notifications": {call: stat, kinds: well, script: before(strings.Repeat(`{"jsonrpc":"2.0","method":"exec","params":{}}`+"\n", 100_000))},
		"empty lines":   {call: stat, kinds: well, script: before(strings.Repeat("\n \r\t", 1_000_000) + "\n")},
		"two replies":   {call: both(stat, exists), kinds: well, script: saying("stat", twice)},
		"neither":       {call: stat, kinds: internal, script: saying("stat", func(w io.Writer, id string) bool { _, err := io.WriteString(w, `{"id":`+id+"}\n"); return err == nil })},
		"two ids": {call: stat, kinds: internal, script: saying("stat", func(w io.Writer, id string) bool {
			_, err := io.WriteString(w, `{"id":`+id+`,"id":77,"result":{"type":"file"}}`+"\n")
			return err == nil
		})},
		"never":               {call: stat, kinds: gaveUp, within: briefly, script: saying("stat", func(io.Writer, string) bool { return true })},
		"a million contents":  {call: execute, kinds: internal, script: million(`{"exit_code":0,"reason":"exited"`, `,"stdout":{"text":"\n"}`, "}")},
		"a million times two": {call: execute, kinds: internal, script: million(`{"exit_code":0,"reason":"exited"}`, `,"result":{"stdout":{"text":"\n"},"exit_code":0,"reason":"exited"}`, "")},
		"late":                {call: late, kinds: []sandbox.Kind{sandbox.KindUnavailable}, says: "did not answer in time", script: saying("exec", func(io.Writer, string) bool { return true })},
	}
}

// both makes one call behind another.
func both(calls ...func(context.Context, sandbox.Backend) error) func(context.Context, sandbox.Backend) error {
	return func(ctx context.Context, b sandbox.Backend) error {
		for _, call := range calls {
			if err := call(ctx, b); err != nil {
				return err
			}
		}
		return nil
	}
}

// million is an answer to exec that says something until the line is full.
func million(head, again, tail string) hostileagent.Script {
	return saying("exec", func(w io.Writer, id string) bool {
		const almost = 31 << 20
		return hostileagent.Result(w, id, head+strings.Repeat(again, almost/len(again))+tail) == nil
	})
}

// late is a command whose answer must not be waited for: P16.3.
func late(ctx context.Context, b sandbox.Backend) error {
	began := time.Now()
	_, err := b.Exec(ctx, "true", sandbox.ExecOptions{Timeout: 10 * time.Millisecond})
	if took := time.Since(began); took < 2*time.Second {
		return fmt.Errorf("given up after %v", took)
	}
	return err
}

// errorLies: of who a client is, and of what it has said, an agent knows nothing.
func errorLies() map[string]lie {
	all := map[string]lie{
		"unknown":    {call: stat, kinds: internal, script: failing("made_up", `"m"`, -1)},
		"by code":    {call: stat, kinds: []sandbox.Kind{sandbox.KindNotFound}, script: failing("made_up", `"m"`, -32003)},
		"huge":       {call: stat, kinds: []sandbox.Kind{sandbox.KindNotFound}, script: failing("not_found", `"`+strings.Repeat("x", 1<<20)+`"`, -32003)},
		"huge kind":  {call: stat, kinds: internal, script: failing(strings.Repeat("x", 1<<20), `"m"`, -1)},
		"control":    {call: stat, kinds: []sandbox.Kind{sandbox.KindNotFound}, script: failing("not_found", `"\u0000\u001b[2J\r\n"`, -32003)},
		"no message": {call: stat, kinds: internal, script: failing("not_found", "7", -32003)},
	}
	for _, kind := range []string{"unauthenticated", "token_invalid", "parse_error", "invalid_request", "message_too_large", "unknown_method"} {
		all[kind] = lie{call: stat, kinds: internal, script: failing(kind, `"m"`, -32001)}
	}
	return all
}

// dataLies: what is said on a data connection, and of it.
func dataLies() map[string]lie {
	says := func(text string, stay bool) hostileagent.Script {
		return hostileagent.Script{Data: func(c net.Conn, preamble string) {
			if strings.HasPrefix(preamble, "CTRLF1 ") {
				io.WriteString(c, "ERR unsupported\n")
				return
			}
			io.WriteString(c, text)
			if stay {
				io.Copy(io.Discard, c)
			}
		}}
	}
	withResult := func(s hostileagent.Script, result string) hostileagent.Script {
		s.Results = map[string]string{"transfer_result": result}
		return s
	}
	promised := func(bytes string) hostileagent.Script {
		s := says("OK\nhello", false)
		s.Results = map[string]string{"read_file": `{"transfer":` + hostileagent.Transfer("read", hostileagent.Token, "unix:///d") + `,"length":` + bytes + `,"size":` + bytes + `}`,
			"transfer_result": `{"bytes":` + bytes + `}`}
		return s
	}
	cut := []sandbox.Kind{sandbox.KindTruncated, sandbox.KindConnectionLost, sandbox.KindChanged}
	return map[string]lie{
		"nothing":          {call: readStream, kinds: lost, script: says("", false)},
		"garbage":          {call: readStream, kinds: lost, script: says("garbage\n", true)},
		"a long refusal":   {call: readStream, kinds: lost, script: says("ERR "+strings.Repeat("x", 1<<20), true)},
		"refused":          {call: readStream, kinds: internal, script: says("ERR token_invalid\n", true)},
		"OK never":         {call: readStream, kinds: gaveUp, within: briefly, script: says("", true)},
		"OK never, write":  {call: writeStream, kinds: gaveUp, within: briefly, script: says("", true)},
		"fewer bytes":      {call: readStream, kinds: cut, script: says("OK\nhel", false)},
		"fewer, and says":  {call: readStream, kinds: []sandbox.Kind{sandbox.KindTruncated}, script: withResult(says("OK\nhello", true), `{"bytes":4}`)},
		"more than it has": {call: readStream, kinds: []sandbox.Kind{sandbox.KindTruncated}, script: withResult(says("OK\nhello", true), `{"bytes":9007199254740991}`)},
		"more bytes":       {call: readStream, kinds: well, script: says("OK\nhello"+strings.Repeat("x", 100_000), true)},
		"no verdict":       {call: readStream, kinds: gaveUp, within: briefly, script: silent(says("OK\nhello", true), "transfer_result")},
		"a bad verdict":    {call: readStream, kinds: internal, script: withResult(says("OK\nhello", true), "7")},
		"4 PB":             {call: readAll, kinds: cut, script: promised("4503599627370496")},
		"2^53":             {call: readAll, kinds: internal, script: promised("9007199254740992")},
	}
}

// silent has an agent not answer a method.
func silent(s hostileagent.Script, method string) hostileagent.Script {
	s.Says = map[string]func(io.Writer, string) bool{method: func(io.Writer, string) bool { return true }}
	return s
}
