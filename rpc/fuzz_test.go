package rpc

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"maps"
)

// FuzzLine: no line panics, whatever is valid here is valid JSON, and what is
// echoed as an id is one.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"stat","params":{"path":"x"}}`))
	f.Add([]byte(`[{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"ping"},{"params":[],"method":"exec"}]`))
	for method, p := range everyParams() {
		f.Add(append(EncodeParams([]byte(`{"id":1e5,"method":"`+method+`","jsonrpc":"2.0","params":`), p), '}'))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		requests, _, fault := ParseLine(line, 64, true)
		if fault == nil && !(json.Valid(line) && utf8.Valid(line)) {
			t.Fatalf("took %q", line)
		}
		for _, r := range requests {
			if r.ID != nil && (!json.Valid(r.ID) || !bytes.Contains(line, r.ID)) {
				t.Fatalf("id %q of %q", r.ID, line)
			}
			if r.Err == nil && (r.Params == nil || r.Method == "") {
				t.Fatalf("neither error nor params: %q", line)
			}
			if !r.Notify && r.Err == nil {
				roundTrip(t, r.Method, r.Params)
			}
		}
	})
}

// FuzzParams decodes each method's params; what is taken comes back the same.
func FuzzParams(f *testing.F) {
	methods := slices.Sorted(maps.Keys(everyParams()))
	for i, method := range methods {
		f.Add(byte(i), EncodeParams(nil, everyParams()[method]))
	}
	f.Fuzz(func(t *testing.T, which byte, text []byte) {
		method := methods[int(which)%len(methods)]
		p, err := DecodeParams(method, text)
		if err == nil {
			roundTrip(t, method, p)
		}
	})
}

func roundTrip(t *testing.T, method string, p Params) {
	t.Helper()
	again, err := DecodeParams(method, EncodeParams(nil, p))
	if err != nil {
		if method == MethodHello {
			return // a version that is none of ours
		}
		t.Fatalf("%s: %v: %s", method, err, EncodeParams(nil, p))
	}
	// Empty and absent are the same, so compare what is encoded.
	if a, b := EncodeParams(nil, p), EncodeParams(nil, again); !bytes.Equal(a, b) {
		t.Fatalf("%s: %s became %s", method, a, b)
	}
}

// FuzzContent holds the encoder to the rule.
func FuzzContent(f *testing.F) {
	f.Add([]byte("a\"世\x00\xff"))
	f.Add(bytes.Repeat([]byte("ab\n"), 5000))
	f.Fuzz(func(t *testing.T, b []byte) { checkRule(t, b) })
}

// FuzzAnswer: no answer panics or is taken when it is no JSON.
func FuzzAnswer(f *testing.F) {
	for _, r := range everyResult() {
		m := NewResult([]byte("1"), r)
		line, _ := m.fill(make([]byte, 0, 1<<16))
		f.Add(line)
	}
	f.Add([]byte(`{"result":{"exists":true},"error":{"code":1,"message":"x","data":{"kind":"busy"}},"id":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, r := range everyResult() {
			into := reflect.New(reflect.TypeOf(r).Elem()).Interface().(Result)
			a := parseAnswer(line, func([]byte) Result { return into })
			if a.fault == nil && !json.Valid(line) {
				t.Fatalf("took %q", line)
			}
		}
	})
}
